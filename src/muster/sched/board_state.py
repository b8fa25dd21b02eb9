"""The fields of the scheduler's board, and the methods that its waiting side and its running side share."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field
from heapq import heappop, heappush
from math import inf

from muster.core.job import Job, Seat
from muster.core.resources import WHOLE
from muster.core.rules import QueueRules, Rules
from muster.core.state import State
from muster.sched.by_value import ByValue, Rung
from muster.sched.capacity.free import Free
from muster.sched.failed_preemptions import EVERYWHERE, Log
from muster.sched.order import Policy
from muster.sched.policies import policy_of
from muster.sched.queued_jobs import Queued, Shape, Stream
from muster.sched.quota import Quotas
from muster.sched.shares import Shares

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
    rung: Rung  # its position by value
    overdue: bool = False
    leaving: bool = False
    ends: float = inf  # expected end; kept where some queue makes reservations
    counted: bool = True  # against quota and limits; a leaving gang does not count

    @property
    def worth(self) -> float:
        """Its value, see `Policy.worth`; inf for a gang that is never preempted."""
        return self.rung.worth


@dataclass(frozen=True, slots=True)
class Claimed:
    """Seats that are reserved for a job until other gangs have left them."""

    job: Job
    seats: tuple[Seat, ...]
    pool: str


@dataclass(slots=True)
class BoardState:
    """Indexes of the state. Everything here is derived from the state and the time."""

    free: Free = field(default_factory=Free)
    quotas: Quotas = field(default_factory=Quotas)
    queued: dict[str, Queued] = field(default_factory=dict)
    running: dict[str, Running] = field(default_factory=dict)
    claims: dict[str, Claimed] = field(default_factory=dict)
    shares: Shares = field(default_factory=lambda: Shares(State()))
    counts: Counter[tuple[str, ...]] = field(default_factory=Counter)  # ("queue", name) → running gangs, and so on
    weights: defaultdict[tuple[str, ...], float] = field(default_factory=lambda: defaultdict(float))  # accelerators
    lines: defaultdict[str, dict[Stream, None]] = field(default_factory=lambda: defaultdict(dict))  # queue → streams
    shapes: dict[str, dict[Shape, None]] = field(default_factory=dict)  # pool → shapes of queued jobs
    shapes_changed: dict[Shape, None] = field(default_factory=dict)  # since the last round
    # Pool → its streams, highest value first.
    most_valuable: defaultdict[str, list[tuple[float, int, Stream]]] = field(default_factory=lambda: defaultdict(list))
    late: defaultdict[str, dict[Stream, None]] = field(default_factory=lambda: defaultdict(dict))  # pool → overdue
    elastic: dict[str, None] = field(default_factory=dict)  # running gangs with fewer nodes than they want
    # Pool → its running gangs by expected end; kept where some queue makes reservations.
    ending: defaultdict[str, list[tuple[float, int, str]]] = field(default_factory=lambda: defaultdict(list))
    leaving: defaultdict[str, set[str]] = field(default_factory=lambda: defaultdict(set))  # pool → preempted
    pools_changed: dict[str, None] = field(default_factory=dict)  # where preemption may have a new result
    _state: State | None = None
    _cursor: int = 0
    _rules: Rules = field(default_factory=Rules)
    _epoch: int = -1
    _fair: bool = False
    _building: bool = False  # during a rebuild, in which `Shares.load` has already counted the usage
    _now: float = 0.0
    _by_user: bool = False  # whether users of a queue are distinguished
    _queues: dict[str, tuple[QueueRules, Policy]] = field(default_factory=dict)
    order_drifts: bool = False  # whether a queue is served in an order that changes with usage
    ordered: bool = False  # whether any queue is served in its order (backfill other than `greedy`)
    turns: bool = False  # whether any queue has a time slice
    _reserves: bool = False  # whether any queue makes reservations
    _learns: bool = False  # whether finished jobs change the order of any queue
    limited: bool = False  # whether limits on running jobs exist: an end may let a job start that lacks no nodes
    bursts: dict[str, float] = field(default_factory=dict)  # burst pool → wait in seconds after which it opens
    away: dict[str, str] = field(default_factory=dict)  # pool whose engine can't be reached → error text
    _shapes: dict[Hashable, Shape] = field(default_factory=dict)
    _streams: dict[Hashable, Stream] = field(default_factory=dict)
    _pools: dict[Hashable, tuple[str, ...]] = field(default_factory=dict)
    _made: int = 0  # number of streams created so far
    _pending: dict[str, None] = field(default_factory=dict)  # jobs that a round changed here but not in the state
    _dirty: set[str] = field(default_factory=set)  # the same for nodes
    # Key "": queued jobs. Running gangs are under their pool: their timers matter only if a job waits for the pool.
    _timers: defaultdict[str, list[tuple[float, str]]] = field(default_factory=lambda: defaultdict(list))
    _due: dict[str, float] = field(default_factory=dict)  # job → its valid timer
    easier_nodes: defaultdict[str, Log] = field(default_factory=lambda: defaultdict(Log))  # by pool
    _ladders: defaultdict[str, dict[str, ByValue]] = field(default_factory=lambda: defaultdict(dict))  # pool → queue →
    # Values of running gangs are computed on demand, because mostly no job waits. To do: rungs, and all rungs of users.
    _unvalued: dict[Rung, tuple[str, str]] = field(default_factory=dict)
    _relearnt: dict[str, None] = field(default_factory=dict)
    # User → rungs of the user's gangs, for policies that learn values from finished jobs → pool and queue.
    _user_rungs: defaultdict[str, dict[Rung, tuple[str, str]]] = field(default_factory=lambda: defaultdict(dict))
    _user_streams: defaultdict[str, dict[Stream, None]] = field(default_factory=lambda: defaultdict(dict))
    _groups: defaultdict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))  # group → nodes
    _node_claims: defaultdict[str, dict[str, Claimed]] = field(default_factory=lambda: defaultdict(dict))
    _late_running: defaultdict[str, list[tuple[float, int, str]]] = field(default_factory=lambda: defaultdict(list))
    _maintenance_change_at: float = inf  # when maintenance next begins or ends in any pool

    def running_in(self, pool: str) -> Iterator[Running]:
        """The pool's running gangs, grouped by queue, lowest value first."""
        for by_value in self.ladders(pool).values():
            for _, _, name in by_value:
                yield self.running[name]

    def ladders(self, pool: str) -> dict[str, ByValue]:
        """The pool's running gangs by queue, each sorted by its current values."""
        if self._relearnt or self._unvalued:
            self._value()
        return self._ladders[pool]

    def sitting(self, node: str) -> Iterator[Running]:
        """The running gangs on a node, according to the state."""
        assert self._state is not None
        found = self._state.nodes.get(node)
        return (self.running[name] for name in found.jobs if name in self.running) if found else iter(())

    def _value(self) -> None:
        assert self._state is not None
        stale = self._unvalued
        for user in self._relearnt:
            stale.update(self._user_rungs.get(user, {}))
        for rung, (pool, queue) in stale.items():
            worth = self._queue(queue)[1].worth(rung.band, self._state.history)
            if worth < rung.worth:
                self._ease(pool, [self.running[name] for _, name in rung.members])
            if worth != rung.worth:
                self._ladders[pool][queue].move(rung, worth)
        self._unvalued, self._relearnt = {}, {}

    def _ease(self, pool: str, gangs: list[Running]) -> None:
        """Logs the nodes of gangs that may have become easier to preempt."""
        log = self.easier_nodes[pool]
        if len(gangs) > _FEW:
            log.add(EVERYWHERE)
            return
        for known in gangs:
            for seat in known.seats:
                log.add(seat.node)

    def pool_of(self, seats: tuple[Seat, ...]) -> str:
        assert self._state is not None
        node = self._state.nodes.get(seats[0].node) if seats else None
        return node.pool if node else ""

    def wake_at(self) -> float | None:
        """When time alone next changes a job's position; None while no job is queued."""
        if not self.queued:
            return None
        found = self._maintenance_change_at
        for pool in ("", *self.shapes):
            if timers := self._timers[pool]:
                while timers and self._due.get(timers[0][1]) != timers[0][0]:
                    heappop(timers)
                if timers and timers[0][0] < found:
                    found = timers[0][0]
        return found if found < inf else None

    def _wake(self, name: str, at: float, pool: str = "") -> None:
        if at < inf and self._due.get(name) != at:
            self._due[name] = at
            heappush(self._timers[pool], (at, name))

    def _queue(self, name: str) -> tuple[QueueRules, Policy]:
        found = self._queues.get(name)
        if found is None:
            rules = self._rules.queue(name)
            found = self._queues[name] = (rules, policy_of(rules))
        return found

    def _account(self, job: Job, pool: str, seats: tuple[Seat, ...], sign: int) -> None:
        """Counts the gang against its queue's quota and the limits on running jobs; `sign` -1 removes it."""
        weight = weight_of(seats)
        self.quotas.change(job.queue, pool, sign * weight)
        counts = self.counts
        counts["queue", job.queue] += sign
        counts["user", job.queue, job.user] += sign
        counts["project", job.project] += sign
        if self.limited:
            self.weights["user", job.queue, job.user] += sign * weight
            self.weights["project", job.project] += sign * weight

    def _loosen(self) -> None:
        """Less counts against limits and quotas now: marks all waiting shapes and pools as changed."""
        if self.limited:
            for pool, shapes in self.shapes.items():
                self.shapes_changed.update(shapes)
                self.pools_changed[pool] = None


def weight_of(seats: tuple[Seat, ...]) -> float:
    """Accelerators that the seats take."""
    return sum([len(seat.devices) * seat.share for seat in seats]) / WHOLE
