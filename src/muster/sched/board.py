"""What the scheduler keeps between rounds: indexes of the state, updated from what changed.

Everything here is derived from the state and the time. A lost board is rebuilt and gives the same plan. It only saves
the work of looking at everything in every round.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from math import inf

from muster.core.entities import Node
from muster.core.entities.demand import typical_work
from muster.core.job import Job, Seat
from muster.core.state import State
from muster.core.windows import closes, next_change
from muster.sched.capacity.free import Free
from muster.sched.changes import Changes
from muster.sched.claims import Claimed, Claims
from muster.sched.limits import Limits
from muster.sched.node_prices import NodePrices
from muster.sched.pool_access import PoolAccess
from muster.sched.queued_jobs import Queued
from muster.sched.quota import Quotas
from muster.sched.rules_view import RulesView
from muster.sched.running_gangs import Running, RunningGangs
from muster.sched.shares import Shares
from muster.sched.timers import QUEUED, Timers
from muster.sched.waiting_jobs import WaitingJobs


@dataclass(slots=True)
class Board:
    """Call `sync` first. A round may then take seats from it; the next `sync` reverts what was not committed.

    Each part keeps one thing and can be used alone; the board passes on what an event or a plan means for the others.
    """

    free: Free = field(init=False)  # what is free, by pool and node
    rules: RulesView = field(init=False)
    limits: Limits = field(init=False)  # what counts against quotas and limits
    pools: PoolAccess = field(init=False)  # which pools a job may use
    waiting: WaitingJobs = field(init=False)
    gangs: RunningGangs = field(init=False)
    prices: NodePrices = field(init=False)
    claims: Claims = field(init=False)
    shares: Shares = field(init=False)  # fair share
    changes: Changes = field(init=False)  # since the last round
    timers: Timers = field(init=False)
    _order_drifts: bool = False  # whether a queue is served in an order that changes with usage
    _state: State | None = None
    _cursor: int = 0
    _epoch: int = -1
    _pending: dict[str, None] = field(default_factory=dict)  # jobs that a round changed here but not in the state
    _rules_change_at: float = inf  # when maintenance next begins or ends in any pool, or a price changes

    def __post_init__(self) -> None:
        self._use(State(), 0.0)

    def sync(self, state: State, now: float) -> None:
        self.free.set_typical(typical_work(state))
        changes = state.journal.since(self._cursor) if state is self._state else None
        self._cursor = state.journal.end
        if changes is None or now >= self._rules_change_at:
            self._rebuild(state, now)
            return
        jobs, nodes, users = self._pending, self.free.touched() | self.claims.touched, dict[str, None]()
        for what, name in changes:
            if what == "job":
                jobs[name] = None
            elif what == "node":
                nodes.add(name)
            elif what == "history":
                users[name] = None
            else:
                self._rebuild(state, now)
                return
        self._pending = {}
        self.claims.touched.clear()
        self.timers.pop_due(QUEUED, now, jobs)
        for name in jobs:
            self._sync_job(name, now)
        for pool in list(self.waiting.shapes):
            if self.timers.any_due(pool, now):
                due = dict[str, None]()
                self.timers.pop_due(pool, now, due)
                for name in due:
                    self._sync_job(name, now)
        for name in nodes | self.claims.touched:
            self._sync_node(name, now)
        self.claims.touched.clear()
        self.free.settle()
        if self.rules.fair:
            self.shares.look(now)
        self._learn(users)
        self._mark_changes()

    def begin(self, queued: Queued, seats: tuple[Seat, ...], now: float) -> None:
        """The job starts: removes it from its queue and takes its seats."""
        job = queued.job
        claimed = job.id in self.claims.by_job
        self._forget(job.id, now, starts=True)
        if claimed:
            self.claims.remove(job.id)
        else:  # claimed seats were taken when the claim was made
            self.free.take(seats, job.ask)
        attempt = (job.attempt.number if job.attempt else 0) + 1
        known = self.gangs.add(job, seats, attempt, now, self.pool_of(seats), charge=True)
        self.gangs.expect_end(known)
        if queued.stream.overdue:
            self.gangs.start_overdue(known, now)
        self._pending[job.id] = None

    def leave(self, known: Running) -> None:
        """The gang is preempted: it stops counting against quotas and limits, and can't be chosen again."""
        self.gangs.leave(known)
        self._mark_eased()
        self._pending[known.job.id] = None

    def claim(self, job: Job, seats: tuple[Seat, ...]) -> None:
        """Reserves the seats for the job until the gangs there have left."""
        self._pending[job.id] = None
        self.claims.add(job, seats, self.pool_of(seats))

    def release_claim(self, name: str, now: float) -> None:
        """Releases the seats that were reserved for the job."""
        self._pending[name] = None
        nodes = [seat.node for seat in self.claims.by_job[name].seats]
        self.claims.remove(name)
        for node in nodes:
            self._sync_node(node, now)
        if name in self.waiting.queued:
            self.waiting.mark_changed(self.waiting.queued[name].stream.shape)

    @property
    def order_may_have_changed(self) -> bool:
        """Whether queued jobs may have changed places although nothing happened to them."""
        return self._order_drifts or (self.rules.ordered and self.waiting.any_overdue)

    def pool_of(self, seats: tuple[Seat, ...]) -> str:
        assert self._state is not None
        node = self._state.nodes.get(seats[0].node) if seats else None
        return node.pool if node else ""

    def wake_at(self) -> float | None:
        """When time alone next changes a job's position; None while no job is queued."""
        if not self.waiting.queued:
            return None
        found = min(self._rules_change_at, self.timers.first((QUEUED, *self.waiting.shapes)))
        return found if found < inf else None

    def _use(self, state: State, now: float) -> None:
        """New, empty parts for this state."""
        self.free, self.changes, self.timers = Free(), Changes(), Timers()
        self.rules, self.pools, self.shares = RulesView.of(state.rules), PoolAccess.of(state, now), Shares(state)
        self.limits = Limits(Quotas(state.rules, tuple(state.queues)), self.rules.limited)
        self.claims = Claims(self.limits)
        self.waiting = WaitingJobs(state, self.rules, self.pools, self.changes, self.timers)
        self.gangs = RunningGangs(state, self.rules, self.limits, self.shares, self.changes, self.timers)
        self.prices = NodePrices(self.gangs)
        self._order_drifts = self.rules.ordered and (self.rules.fair or self.limits.quotas.any)
        self._pending = {}

    def _rebuild(self, state: State, now: float) -> None:
        self._use(state, now)
        self.free.set_typical(typical_work(state))
        self._state, self._cursor, self._epoch = state, state.journal.end, state.history.epoch
        maintenance = min((next_change(state.rules.pool(name), now) for name in state.pools), default=inf)
        self._rules_change_at = min(maintenance, self.pools.prices_change())
        if self.rules.fair:
            self.shares.load(now)
            self.shares.look(now)
        for job in state.jobs.values():
            self._sync_job(job.id, now, loading=True)
        for name in state.nodes:
            self._sync_node(name, now)
        self.claims.touched.clear()
        self.free.settle()
        self._mark_changes()

    def _mark_changes(self) -> None:
        """Marks all shapes that wait for a pool as changed when something in the pool became free."""
        self._mark_eased()
        for pool in self.free.grown:
            self.waiting.mark_pool(pool)
        self.free.grown.clear()

    def _mark_eased(self) -> None:
        if self.changes.limits_eased:
            self.changes.limits_eased = False
            if self.limits.limited:
                for pool in self.waiting.shapes:
                    self.waiting.mark_pool(pool)

    def _sync_node(self, name: str, now: float) -> None:
        assert self._state is not None
        node = self._state.nodes.get(name)
        if node is None:
            self.free.drop(name)
            return
        rules = self.rules.rules.pool(node.pool)
        claims = self.claims.on(name)
        if claims:
            node = _without(node, claims)
        grew = self.free.grew(node.pool)
        self.free.set(node, rules, closes(rules, name, now) if rules.maintenance else inf)
        if self.free.grew(node.pool) != grew:
            self.gangs.easier_nodes[node.pool].add(name)

    def _sync_job(self, name: str, now: float, loading: bool = False) -> None:
        """`loading`: during a rebuild, in which `Shares.load` has already counted the usage."""
        assert self._state is not None
        job = self._state.jobs.get(name)
        known, claim = self.gangs.running.get(name), self.claims.by_job.get(name)
        if claim is not None and (job is None or claim.seats != job.claim):
            self.claims.remove(name)
        current = job.attempt.number if job is not None and job.active and job.attempt is not None else 0
        if known is None or job is None or known.attempt != current:
            if known is not None or name in self.waiting.queued:
                self._forget(name, now)
            if job is None:
                return
            if job.phase == "queued" and not job.awaits:
                self.waiting.add(job, now)
            elif job.active:
                assert job.attempt is not None
                seats = tuple([worker.seat for worker in job.attempt.workers])
                known = self.gangs.add(job, seats, current, now, job.attempt.pool, charge=not loading)
        if job.active and known is not None:
            self.gangs.update(known, now)
        if job.claim and name not in self.claims.by_job:
            self.claims.add(job, job.claim, self.pool_of(job.claim))

    def _forget(self, name: str, now: float, starts: bool = False) -> None:
        self.timers.cancel(name)
        queued = self.waiting.remove(name)
        if queued is not None and not starts and queued.stream.rules.backfill != "greedy":
            self.waiting.mark_queue(queued.stream.queue)  # the jobs behind it may have waited only for this one
        self.gangs.remove(name, now)

    def _learn(self, users: dict[str, None]) -> None:
        """Updates the values of these users' jobs after new ends in the history; of all jobs in a new epoch."""
        assert self._state is not None
        if not self.rules.learns:
            return
        if self._epoch != self._state.history.epoch:
            self._epoch = self._state.history.epoch
            users = dict.fromkeys([*self.gangs.users, *self.waiting.users])
        for user in users:
            self.gangs.relearn(user)
            self.waiting.revalue(user)


def _without(node: Node, claims: Iterable[Claimed]) -> Node:
    """The node as jobs without a claim on it see it: without the claimed resources."""
    left = replace(node, parts=dict(node.parts))
    for claim in claims:
        ask = claim.job.ask
        seat = next(seat for seat in claim.seats if seat.node == node.name)
        wanted = sum(1 << device for device in seat.devices)
        whole = (left.free_devices & wanted).bit_count()
        left.free_devices &= ~wanted
        for device in seat.devices:
            left.parts.pop(device, None)
        free = left.free
        left.free = replace(
            free,
            milli_cpus=max(free.milli_cpus - ask.milli_cpus, 0),
            memory=max(free.memory - ask.memory, 0),
            accelerators=free.accelerators - whole,
        )
    return left
