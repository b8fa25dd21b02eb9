"""What the scheduler keeps between rounds: indexes of the state, updated from what changed.

Everything here is derived from the state and the time. A lost board is rebuilt and gives the same plan. It only saves
the work of looking at everything in every round.
"""

from __future__ import annotations

from bisect import insort
from dataclasses import replace
from heapq import heappop
from math import inf

from muster.core.entities import Node
from muster.core.job import Job, Seat
from muster.core.state import State
from muster.sched.board_state import Claimed, Running
from muster.sched.holding import Holding, safe_until
from muster.sched.policies import policy_of
from muster.sched.queued_jobs import Queued
from muster.sched.quota import Quotas
from muster.sched.shares import Shares
from muster.sched.waiting import OVERRUN, Waiting
from muster.sched.windows import closes, next_change

__all__ = ["OVERRUN", "Board", "Claimed", "Running", "safe_until"]


class Board(Waiting, Holding):
    """Call `sync` first. A round may then take seats from it; the next `sync` reverts what was not committed."""

    __slots__ = ()

    def sync(self, state: State, now: float) -> None:
        self._now = now
        changes = state.journal.since(self._cursor) if state is self._state else None
        self._cursor = state.journal.end
        if changes is None or now >= self._maintenance_change_at or ("entity" in {what for what, _ in changes}):
            self._rebuild(state, now)
            return
        jobs, nodes, users = self._pending, set(self.free.touched()) | self._dirty, dict[str, None]()
        self._pending, self._dirty = {}, set()
        for what, name in changes:
            if what == "job":
                jobs[name] = None
            elif what == "node":
                nodes.add(name)
            else:
                users[name] = None
        self._pop_due("", now, jobs)
        for name in jobs:
            self._sync_job(name, now)
        for pool in list(self.shapes):
            if (timers := self._timers[pool]) and timers[0][0] <= now:
                due = dict[str, None]()
                self._pop_due(pool, now, due)
                for name in due:
                    self._sync_job(name, now)
        for name in nodes | self._dirty:
            self._sync_node(name, now)
        self._dirty.clear()
        self.free.settle()
        if self._fair:
            self.shares.look(now)
        self._learn(users)
        self._mark_grown()

    def begin(self, queued: Queued, seats: tuple[Seat, ...], now: float) -> None:
        """The job starts: removes it from its queue and takes its seats."""
        job = queued.job
        claimed = job.id in self.claims
        self._forget(job.id, starts=True)
        if claimed:
            self._unclaim(job.id)
        else:  # claimed seats were taken when the claim was made
            self.free.take(seats, job.ask)
        known = self._hold(job, seats, (job.attempt.number if job.attempt else 0) + 1, now, self.pool_of(seats))
        if self._reserves:
            self._expect_end(known)
        if queued.stream.overdue:
            known.overdue = True
            insort(self._late_running[known.pool], (now, job.number, job.id))
        self._pending[job.id] = None

    def claim(self, job: Job, seats: tuple[Seat, ...]) -> None:
        """Reserves the seats for the job until the gangs there have left."""
        self._pending[job.id] = None
        self._claim(job, seats)

    def release_claim(self, name: str, now: float) -> None:
        """Releases the seats that were reserved for the job."""
        self._pending[name] = None
        nodes = [seat.node for seat in self.claims[name].seats]
        self._unclaim(name)
        for node in nodes:
            self._sync_node(node, now)
        if name in self.queued:
            shape = self.queued[name].stream.shape
            self.shapes_changed[shape] = None
            for pool in shape.gang.pools:
                self.pools_changed[pool] = None

    def _rebuild(self, state: State, now: float) -> None:
        self.__init__()  # type: ignore[misc]  # reset every field
        self._now, self._building = now, True
        self._state, self._cursor, self._rules = state, state.journal.end, state.rules
        every = [state.rules.defaults, *state.rules.queues.values()]
        self._learns = any(policy_of(rule).learns for rule in every)
        self.ordered = any(rule.backfill != "greedy" for rule in every)
        self.turns = any(rule.slice is not None for rule in every)
        self._reserves = any(rule.backfill in ("easy", "conservative") for rule in every)
        own = any(rule.max_per_user or rule.max_accelerators_per_user is not None for rule in every)
        self._by_user = state.rules.between == "fair" or own
        self.limited = own or any(rule.max_running for rule in every) or bool(state.rules.projects)
        self.quotas = Quotas(state.rules, tuple(state.queues))
        self.order_drifts = self.ordered and (state.rules.between == "fair" or self.quotas.any)
        self._fair = state.rules.between == "fair"
        self.shares = Shares(state)
        if self._fair:
            self.shares.load(now)
            self.shares.look(now)
        self._epoch = state.history.epoch
        self.bursts = _bursts(state)
        self.away = {name: pool.away for name, pool in state.pools.items() if pool.away}
        self._maintenance_change_at = min(
            (next_change(state.rules.pool(name), now) for name in state.pools), default=inf
        )
        for job in state.jobs.values():
            self._sync_job(job.id, now)
        for name in state.nodes:
            self._sync_node(name, now)
        self._dirty.clear()
        self._building = False
        self.free.settle()
        self._mark_grown()

    def _pop_due(self, pool: str, now: float, into: dict[str, None]) -> None:
        timers = self._timers[pool]
        while timers and timers[0][0] <= now:
            at, name = heappop(timers)
            if self._due.get(name) == at:
                del self._due[name]
                into[name] = None

    def _mark_grown(self) -> None:
        """Marks all shapes that wait for a pool as changed when something in the pool became free."""
        if self.free.grown:
            for pool in self.free.grown:
                if pool in self.shapes:
                    self.shapes_changed.update(self.shapes[pool])
                    self.pools_changed[pool] = None
            self.free.grown.clear()

    def _sync_node(self, name: str, now: float) -> None:
        assert self._state is not None
        node = self._state.nodes.get(name)
        if node is None:
            self.free.drop(name)
            return
        rules = self._rules.pool(node.pool)
        claims = self._node_claims.get(name)
        if claims:
            node = self._without(node, claims)
        grew = self.free.grew(node.pool)
        self.free.set(node, rules, closes(rules, name, now) if rules.maintenance else inf)
        if self.free.grew(node.pool) != grew:
            self.easier_nodes[node.pool].add(name)

    def _without(self, node: Node, claims: dict[str, Claimed]) -> Node:
        """The node as jobs without a claim on it see it: without the claimed resources."""
        left = replace(node, parts=dict(node.parts))
        for claim in claims.values():
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

    def _sync_job(self, name: str, now: float) -> None:
        assert self._state is not None
        job = self._state.jobs.get(name)
        known, claim = self.running.get(name), self.claims.get(name)
        if claim is not None and (job is None or claim.seats != job.claim):
            self._unclaim(name)
        current = job.attempt.number if job is not None and job.active and job.attempt is not None else 0
        if known is None or job is None or known.attempt != current:
            self._forget(name)
            if job is None:
                return
            if job.phase == "queued":
                self._enter(job, now)
            elif job.active:
                assert job.attempt is not None
                seats = tuple([worker.seat for worker in job.attempt.workers])
                known = self._hold(job, seats, current, now, job.attempt.pool)
        if job.active and known is not None:
            self._refresh(known, now)
        if job.claim and name not in self.claims:
            self._claim(job, job.claim)

    def _forget(self, name: str, starts: bool = False) -> None:
        self._due.pop(name, None)
        queued = self.queued.pop(name, None)
        if queued is not None:
            self._leave_line(queued)
            if not starts and queued.stream.rules.backfill != "greedy":
                # The jobs behind it may have waited only for this one.
                self.shapes_changed.update((stream.shape, None) for stream in self.lines[queued.stream.queue])
        known = self.running.pop(name, None)
        if known is not None:
            self._drop_running(known)

    def _learn(self, users: dict[str, None]) -> None:
        """Updates the values of these users' jobs after new ends in the history; of all jobs in a new epoch."""
        assert self._state is not None
        if not self._learns:
            return
        if self._epoch != self._state.history.epoch:
            self._epoch = self._state.history.epoch
            users = dict.fromkeys([*self._user_rungs, *self._user_streams])
        for user in users:
            self._relearn(user)
            for stream in self._user_streams.get(user, ()):
                self._revalue(stream)


def _bursts(state: State) -> dict[str, float]:
    rules = state.rules.pools
    return {name: rule.burst for name in sorted(rules) if (rule := rules[name]).burst is not None}
