"""Gangs that hold resources: their values, their expected ends, and which of them leave or could grow."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field
from math import inf

from muster.core.entities.account import amount
from muster.core.job import Job, Seat
from muster.core.rules import QueueRules, Rules
from muster.core.seat import is_slot
from muster.core.state import State
from muster.sched.by_value import NEVER, ByValue, Tier
from muster.sched.changes import Changes
from muster.sched.failed_preemptions import EVERYWHERE, Log
from muster.sched.limits import Limits, weight_of
from muster.sched.order import Key, remaining
from muster.sched.quota import EPSILON
from muster.sched.rules_view import RulesView
from muster.sched.shares import Shares
from muster.sched.timers import Timers

OFTEN = 8  # preemptions after which each further one doubles the time for which the job can't be preempted
LEAST = 10.0  # seconds: the minimum base of that time
_FEW = 16  # up to this many gangs are logged node by node


@dataclass(slots=True, eq=False)
class Running:
    """A gang that holds resources."""

    job: Job
    attempt: int
    since: float  # when the attempt started to run, or was planned
    pool: str
    weight: float  # accelerators
    seats: tuple[Seat, ...]
    tier: Tier  # its position by value
    overdue: bool = False
    leaving: bool = False
    exposed: float = inf  # from when on it may be preempted, except to reclaim quota
    ends: float = inf  # expected end; kept where some queue makes reservations
    turn: tuple[float, float, Key] | None = None  # for `reselect`: kept until, place holds until, place
    counted: bool = True  # against quota and limits; a leaving gang does not count

    @property
    def value(self) -> float:
        """Its value, see `Policy.value`; inf for a gang that is never preempted."""
        return self.tier.value


@dataclass(frozen=True, slots=True)
class Privileged:
    """Gangs of overdue jobs that can't be preempted by rank, and the accelerators that they hold."""

    jobs: frozenset[str]
    weight: float
    room: float  # accelerators that such gangs may hold


@dataclass(slots=True)
class RunningGangs:
    state: State
    rules: RulesView
    limits: Limits
    shares: Shares
    changes: Changes
    timers: Timers
    running: dict[str, Running] = field(default_factory=dict)  # by job
    elastic: dict[str, None] = field(default_factory=dict)  # gangs that may get another number of nodes
    leaving: defaultdict[str, set[str]] = field(default_factory=lambda: defaultdict(set))  # pool → preempted
    # Pool → its gangs by expected end; kept where some queue makes reservations.
    ending: defaultdict[str, list[tuple[float, int, str]]] = field(default_factory=lambda: defaultdict(list))
    # Pool → its gangs of overdue jobs, by their start.
    overdue: defaultdict[str, list[tuple[float, int, str]]] = field(default_factory=lambda: defaultdict(list))
    _privileged: dict[str, Privileged] = field(default_factory=dict)  # by pool, until its `overdue` changes
    easier_nodes: defaultdict[str, Log] = field(default_factory=lambda: defaultdict(Log))  # by pool
    _by_value: defaultdict[str, dict[str, ByValue]] = field(default_factory=lambda: defaultdict(dict))  # pool → queue →
    # Values of gangs are computed on demand, because mostly no job waits. To do: tiers, and all tiers of users.
    _unvalued: dict[Tier, tuple[str, str]] = field(default_factory=dict)
    _relearnt: dict[str, None] = field(default_factory=dict)
    # User → tiers of the user's gangs, for policies that learn values from finished jobs → pool and queue.
    _user_tiers: defaultdict[str, dict[Tier, tuple[str, str]]] = field(default_factory=lambda: defaultdict(dict))
    _groups: defaultdict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))  # group → nodes

    # --- asking -------------------------------------------------------------------------------------------------------
    def in_pool(self, pool: str) -> Iterator[Running]:
        """The pool's gangs, grouped by queue, lowest value first."""
        for by_value in self.by_queue(pool).values():
            for _, _, name in by_value:
                yield self.running[name]

    def by_queue(self, pool: str) -> dict[str, ByValue]:
        """The pool's gangs by queue, each sorted by its current values."""
        if self._relearnt or self._unvalued:
            self._compute_values()
        return self._by_value[pool]

    def least_value(self, pool: str) -> float:
        """The lowest value of any gang of the pool; inf when none may be preempted."""
        return min([by_value.least for by_value in self.by_queue(pool).values()], default=inf)

    def privileged(self, pool: str, room: float) -> Privileged:
        """The oldest of the pool's gangs of overdue jobs: at least one, then as many as `room` accelerators hold."""
        known = self._privileged.get(pool)
        if known is None or known.room != room:
            found, left = dict[str, float](), room
            for _, _, name in self.overdue.get(pool, ()):
                weight = self.running[name].weight
                if any(found.values()) and weight > left + EPSILON:
                    break
                found[name] = weight
                left -= weight
            known = self._privileged[pool] = Privileged(frozenset(found), sum(found.values()), room)
        return known

    def on_node(self, node: str) -> Iterator[Running]:
        """The gangs on a node, according to the state."""
        found = self.state.nodes.get(node)
        return (self.running[name] for name in found.jobs if name in self.running) if found else iter(())

    def near(self, job: Job) -> frozenset[str]:
        """Names of nodes or data that the job should be placed near to now."""
        spec = job.spec
        if spec.placement == "group":
            nodes = self._groups.get(f"{job.project}/{spec.group}") if spec.group else None
            return frozenset(node for node, count in (nodes or {}).items() if count)
        if spec.placement != "locality":
            return frozenset()
        last = {worker.seat.node for worker in job.attempt.workers} if job.attempt else set()
        return frozenset(spec.near or spec.data) | last

    @property
    def users(self) -> list[str]:
        """The users whose finished jobs may change the value of a gang."""
        return list(self._user_tiers)

    # --- changing -----------------------------------------------------------------------------------------------------
    def add(self, job: Job, seats: tuple[Seat, ...], attempt: int, now: float, pool: str, *, charge: bool) -> Running:
        """`charge`: whether the use of these seats is not in the shares yet."""
        tier = self._values_of(pool, job).add(NEVER, (job.number, job.id))
        known = Running(job, attempt, now, pool, weight_of(seats), seats, tier)
        self.running[job.id] = known
        self.limits.add(job, pool, seats)
        if charge and self.rules.fair:
            at = job.attempt.planned_at if job.active and job.attempt else now
            self.shares.change(job.project, job.queue, job.user, amount(job.ask, len(seats)), +1, at)
        if job.spec.group:
            self._groups[f"{job.project}/{job.spec.group}"].update(seat.node for seat in seats)
        pending = bool(seats) and is_slot(seats[0].node) and job.phase != "running"
        if job.spec.min_nodes is not None and (pending or len(seats) < job.spec.num_nodes):
            self.elastic[job.id] = None
        return known

    def update(self, known: Running, now: float) -> None:
        """Takes over what the state says of the gang's job now."""
        job = known.job
        assert job.attempt is not None
        known.since = job.attempt.running_at or job.attempt.planned_at
        rules, policy = self.rules.queue(job.queue)
        standing = policy.standing(job, self.rules.rules, rules, now)
        known.turn = None
        self._update_overdue(known, rules.overdue is not None and job.waited >= rules.overdue)
        if job.stop is not None:
            self._uncount(known)
        elif known.leaving:  # a round preempted it, but its plan was not carried out
            known.leaving, known.counted = False, True
            self.leaving[known.pool].discard(job.id)
            self.limits.add(job, known.pool, known.seats)
        if job.phase == "running" and len(known.seats) == job.spec.num_nodes:
            self.elastic.pop(job.id, None)
        self._set_band(known, standing.band)
        self.expect_end(known)
        self.changes.pools[known.pool] = None
        self._log_easier(known.pool, [known])
        # It can't be preempted before its minimum run time, or its time slice, is over: nothing changes until then.
        safe = safe_until(known, self.rules.rules, rules)
        known.exposed = exposed_from(known, self.rules.rules, rules)
        self.timers.set(job.id, safe if safe > now else standing.until, known.pool)

    def remove(self, name: str, now: float) -> None:
        known = self.running.pop(name, None)
        if known is None:
            return
        job = known.job
        self._leave_tier(known)
        if self.rules.fair:
            attempt = job.attempt
            ended = attempt.ended_at if attempt is not None and attempt.number == known.attempt else None
            at = now if ended is None else ended
            self.shares.change(job.project, job.queue, job.user, amount(job.ask, len(known.seats)), -1, at)
        if known.counted:
            self.limits.remove(job, known.pool, known.seats)
        if known.overdue:
            self._privileged.pop(known.pool, None)
            self.overdue[known.pool] = [entry for entry in self.overdue[known.pool] if entry[2] != job.id]
        self._drop_end(known)
        self.leaving[known.pool].discard(job.id)
        self.elastic.pop(job.id, None)
        self.changes.pools[known.pool] = None
        if job.spec.group:
            self._groups[f"{job.project}/{job.spec.group}"].subtract(seat.node for seat in known.seats)
        self.changes.limits_eased = True

    def leave(self, known: Running) -> None:
        """The gang is preempted: it stops counting against quotas and limits, and can't be chosen again."""
        self._uncount(known)
        self._set_band(known, NEVER)
        self._log_easier(known.pool, [known])

    def start_overdue(self, known: Running, now: float) -> None:
        """The gang of an overdue job has just started."""
        known.overdue = True
        self._privileged.pop(known.pool, None)
        insort(self.overdue[known.pool], (now, known.job.number, known.job.id))

    def expect_end(self, known: Running) -> None:
        if not self.rules.reserves:
            return
        end = known.since + remaining(known.job, self.rules.rules)
        if end != known.ends:
            self._drop_end(known)
            known.ends = end
            insort(self.ending[known.pool], (end, known.job.number, known.job.id))

    def relearn(self, user: str) -> None:
        """The estimates for the user's gangs have changed: their values must be computed again."""
        tiers = self._user_tiers.get(user)
        if tiers:
            self._relearnt[user] = None
            self.changes.pools.update((pool, None) for pool, _ in tiers.values())

    # --- values -------------------------------------------------------------------------------------------------------
    def _compute_values(self) -> None:
        stale = self._unvalued
        for user in self._relearnt:
            stale.update(self._user_tiers.get(user, {}))
        for tier, (pool, queue) in stale.items():
            value = self.rules.queue(queue)[1].value(tier.band, self.state.history)
            if value < tier.value:
                self._log_easier(pool, [self.running[name] for _, name in tier.members])
            if value != tier.value:
                self._by_value[pool][queue].move(tier, value)
        self._unvalued, self._relearnt = {}, {}

    def _values_of(self, pool: str, job: Job) -> ByValue:
        queues = self._by_value[pool]
        found = queues.get(job.queue)
        if found is None:
            found = queues[job.queue] = ByValue()
        return found

    def _set_band(self, known: Running, band: Hashable) -> None:
        """Puts the gang into the tier of its band; into the NEVER tier if it can't be preempted."""
        job = known.job
        rules, policy = self.rules.queue(job.queue)
        if not policy.values or known.leaving or not rules.preemptible:
            band = NEVER
        if known.tier.band == band:
            return
        self._leave_tier(known)
        tier = known.tier = self._values_of(known.pool, job).add(band, (job.number, job.id))
        if band != NEVER and len(tier.members) == 1:
            self._unvalued[tier] = (known.pool, job.queue)
            if policy.learns:
                self._user_tiers[job.user][tier] = (known.pool, job.queue)
        self.changes.pools[known.pool] = None

    def _leave_tier(self, known: Running) -> None:
        job, tier = known.job, known.tier
        self._values_of(known.pool, job).remove(tier, (job.number, job.id))
        if not tier.members:
            self._user_tiers[job.user].pop(tier, None)
            self._unvalued.pop(tier, None)

    # --- ends, limits and the log -------------------------------------------------------------------------------------
    def _drop_end(self, known: Running) -> None:
        if known.ends < inf:
            line = self.ending[known.pool]
            del line[bisect_left(line, (known.ends, known.job.number, known.job.id))]

    def _update_overdue(self, known: Running, overdue: bool) -> None:
        if overdue != known.overdue:
            assert known.job.attempt is not None
            known.overdue = overdue
            self._privileged.pop(known.pool, None)
            entry = (known.job.attempt.planned_at, known.job.number, known.job.id)
            line = self.overdue[known.pool]
            if overdue:
                insort(line, entry)
            else:
                line.remove(entry)

    def _uncount(self, known: Running) -> None:
        known.leaving = True
        self.leaving[known.pool].add(known.job.id)
        if known.counted:
            known.counted = False
            self.limits.remove(known.job, known.pool, known.seats)
            self.changes.limits_eased = True

    def _log_easier(self, pool: str, gangs: list[Running]) -> None:
        """Logs the nodes of gangs that may have become easier to preempt."""
        log = self.easier_nodes[pool]
        if len(gangs) > _FEW:
            log.add(EVERYWHERE)
            return
        for known in gangs:
            for seat in known.seats:
                log.add(seat.node)


def exposed_from(known: Running, rules: Rules, queue: QueueRules) -> float:
    """From when on the gang may be preempted, except to reclaim quota; never if its phase or its queue does not let."""
    job = known.job
    begun = job.phase in ("starting", "running") and job.attempt is not None and job.attempt.running_at is not None
    return safe_until(known, rules, queue) if queue.preemptible and begun else inf


def safe_until(known: Running, rules: Rules, queue: QueueRules) -> float:
    """Until when the gang can't be preempted, except to reclaim quota.

    This time grows for a job that was preempted often, so that every job finishes eventually, whatever the rules.
    """
    often = known.job.charges.get("preempted", 0) - OFTEN
    guard = rules.preemption.min_run if often <= 0 else max(rules.preemption.min_run, LEAST) * 2.0 ** min(often, 30)
    return known.since + max(guard, queue.slice or 0.0)
