"""What the scheduler keeps between rounds: indexes of the state, brought up to date by what changed.

Everything here follows from the state and the time. A board that is lost is built again and gives the same plan: it
only saves the work of looking at everything every time.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush
from math import inf

from muster.core.account import amount
from muster.core.estate import Node
from muster.core.job import Job, Seat
from muster.core.resources import WHOLE
from muster.core.rules import QueueRules, Rules
from muster.core.spec import fewest_nodes
from muster.core.state import State
from muster.sched.lines import Queued, Shape, Stream
from muster.sched.order import Policy, remaining
from muster.sched.place import Gang
from muster.sched.policies import policy_of
from muster.sched.quota import EPSILON, Quotas
from muster.sched.room.free import Free
from muster.sched.shares import Shares
from muster.sched.windows import closes, next_change, opens, shuts

OFTEN = 8  # times that a gang is asked to leave before it is left alone for longer each time
LEAST = 10.0  # seconds that it is left alone then, at least
OVERRUN = 0.5  # of a job that has run longer than was expected: the share of that by which it is taken to go on


@dataclass(slots=True, eq=False)
class Running:
    """A gang that holds resources."""

    job: Job
    attempt: int
    since: float  # when the attempt began to run, or was planned
    pool: str
    weight: float  # accelerators
    seats: tuple[Seat, ...]
    band: Hashable
    overdue: bool
    worth: float  # of the gang; see `Policy.worth`. inf for one that never gives way
    leaving: bool
    ends: float = inf  # when it is expected to be done, if all goes as expected
    counted: bool = True  # against quota and limits: what is leaving does not count


@dataclass(frozen=True, slots=True)
class Claimed:
    """Seats that are kept for a job."""

    job: Job
    seats: tuple[Seat, ...]
    pool: str


@dataclass(slots=True)
class Board:
    """`sync` first; then a round may take from it, and the next `sync` sets right what was not committed."""

    free: Free = field(default_factory=Free)
    quotas: Quotas = field(default_factory=Quotas)
    queued: dict[str, Queued] = field(default_factory=dict)
    running: dict[str, Running] = field(default_factory=dict)
    claims: dict[str, Claimed] = field(default_factory=dict)
    shares: Shares = field(default_factory=lambda: Shares(State()))
    counts: Counter[tuple[str, ...]] = field(default_factory=Counter)  # ("queue", name) → gangs that run, and so on
    weights: defaultdict[tuple[str, ...], float] = field(default_factory=lambda: defaultdict(float))  # accelerators
    lines: defaultdict[str, dict[Stream, None]] = field(default_factory=lambda: defaultdict(dict))  # queue → streams
    shapes: dict[str, dict[Shape, None]] = field(default_factory=dict)  # pool → those that someone waits with
    hot: dict[Shape, None] = field(default_factory=dict)  # shapes for which something changed since the last round
    # Pool → its running gangs, the least worth first; and its streams, the most worth first.
    cheapest: defaultdict[str, list[tuple[float, int, str]]] = field(default_factory=lambda: defaultdict(list))
    dearest: defaultdict[str, list[tuple[float, int, Stream]]] = field(default_factory=lambda: defaultdict(list))
    late: defaultdict[str, dict[Stream, None]] = field(default_factory=lambda: defaultdict(dict))  # pool → overdue
    elastic: dict[str, None] = field(default_factory=dict)  # running gangs that could do with more nodes
    # Pool → its running gangs by when they are expected to end; kept where some queue makes reservations.
    ending: defaultdict[str, list[tuple[float, int, str]]] = field(default_factory=lambda: defaultdict(list))
    leaving: defaultdict[str, set[str]] = field(default_factory=lambda: defaultdict(set))  # pool → those asked to
    stirred: dict[str, None] = field(default_factory=dict)  # pools in which who may take whose place may have changed
    _state: State | None = None
    _cursor: int = 0
    _rules: Rules = field(default_factory=Rules)
    _epoch: int = -1
    _fair: bool = False
    _building: bool = False  # what the state has on record of use is counted already
    _now: float = 0.0
    _by_user: bool = False  # whether users of a queue are told apart
    _queues: dict[str, tuple[QueueRules, Policy]] = field(default_factory=dict)
    restless: bool = False  # whether a queue is served in an order that changes with what its users get
    ordered: bool = False  # whether any queue is served in its order
    turns: bool = False  # whether any queue gives its jobs turns
    _reserves: bool = False  # whether any queue makes reservations
    _learns: bool = False  # whether what has finished changes any queue's order
    limited: bool = False  # whether an end may let someone start who is not short of room
    _shapes: dict[Hashable, Shape] = field(default_factory=dict)
    _streams: dict[Hashable, Stream] = field(default_factory=dict)
    _pools: dict[Hashable, tuple[str, ...]] = field(default_factory=dict)
    _made: int = 0  # streams so far
    _pending: dict[str, None] = field(default_factory=dict)  # jobs that a round changed here and not in the state
    _dirty: set[str] = field(default_factory=set)  # nodes likewise
    # "" is those who wait; those who run stand under their pool: what changes there matters if someone waits for it.
    _timers: defaultdict[str, list[tuple[float, str]]] = field(default_factory=lambda: defaultdict(list))
    _due: dict[str, float] = field(default_factory=dict)  # job → the timer that counts
    _users: defaultdict[str, dict[str, None]] = field(default_factory=lambda: defaultdict(dict))  # → running
    _user_streams: defaultdict[str, dict[Stream, None]] = field(default_factory=lambda: defaultdict(dict))
    _groups: defaultdict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))  # → nodes
    _node_claims: defaultdict[str, dict[str, Claimed]] = field(default_factory=lambda: defaultdict(dict))
    _late_running: defaultdict[str, list[tuple[float, int, str]]] = field(default_factory=lambda: defaultdict(list))
    _turn_at: float = inf  # when maintenance begins or ends somewhere

    # --- in step with the state ---------------------------------------------------------------------------------------
    def sync(self, state: State, now: float) -> None:
        self._now = now
        changes = state.journal.since(self._cursor) if state is self._state else None
        self._cursor = state.journal.end
        if changes is None or now >= self._turn_at or ("estate" in {what for what, _ in changes}):
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
        self._heat()

    def _pop_due(self, pool: str, now: float, into: dict[str, None]) -> None:
        timers = self._timers[pool]
        while timers and timers[0][0] <= now:
            at, name = heappop(timers)
            if self._due.get(name) == at:
                del self._due[name]
                into[name] = None

    def _heat(self) -> None:
        """Where something became free, everyone who waits for that pool is looked at again."""
        if self.free.grown:
            for pool in self.free.grown:
                if pool in self.shapes:
                    self.hot.update(self.shapes[pool])
                    self.stirred[pool] = None
            self.free.grown.clear()

    def _rebuild(self, state: State, now: float) -> None:
        self.__init__()  # type: ignore[misc]  # everything anew
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
        self.restless = self.ordered and (state.rules.between == "fair" or self.quotas.any)
        self._fair = state.rules.between == "fair"
        self.shares = Shares(state)
        if self._fair:
            self.shares.load(now)
            self.shares.look(now)
        self._epoch = state.history.epoch
        self._turn_at = min((next_change(state.rules.pool(name), now) for name in state.pools), default=inf)
        for job in state.jobs.values():
            self._sync_job(job.id, now)
        for name in state.nodes:
            self._sync_node(name, now)
        self._dirty.clear()
        self._building = False
        self.free.settle()
        self._heat()

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
        self.free.set(node, rules, closes(rules, name, now) if rules.maintenance else inf)

    def _without(self, node: Node, claims: dict[str, Claimed]) -> Node:
        """The node as it is to those who have no claim on it."""
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
                # Those behind it may have waited for it alone.
                self.hot.update((stream.shape, None) for stream in self.lines[queued.stream.queue])
        known = self.running.pop(name, None)
        if known is not None:
            self._let_go(known)

    def _unclaim(self, name: str) -> None:
        claim = self.claims.pop(name, None)
        if claim is not None:
            for seat in claim.seats:
                self._node_claims[seat.node].pop(name, None)
                self._dirty.add(seat.node)
            self._account(claim.job, claim.pool, claim.seats, -1)

    def _queue(self, name: str) -> tuple[QueueRules, Policy]:
        found = self._queues.get(name)
        if found is None:
            rules = self._rules.queue(name)
            found = self._queues[name] = (rules, policy_of(rules))
        return found

    # --- queued -------------------------------------------------------------------------------------------------------
    def _enter(self, job: Job, now: float) -> None:
        rules, policy = self._queue(job.queue)
        standing = policy.standing(job, self._rules, rules, now)
        until, late = standing.until, False
        if rules.overdue is not None:
            at = job.since + rules.overdue - job.waited
            late = now >= at
            until = until if late else min(until, at)
        pools, resting, shuts_at = self._quiet(job, self.pools_of(job, now), now)
        if resting > now:
            until = min(until, resting)
        if job.spec.use_spot and job.spec.deadline is not None and self.spot_until(job) > now:
            until = min(until, self.spot_until(job))
        shape = self._shape(job, pools)
        stream = self._stream(job, shape, policy, standing.band, late, resting if resting > now else 0.0)
        entry = (standing.key, job.number, job.id)
        if not stream.entries:
            self._open(stream)
        stream.add(entry)
        self.queued[job.id] = Queued(job, stream, entry)
        self.hot[shape] = None
        for pool in pools:
            self.stirred[pool] = None
        self._wake(job.id, min(until, shuts_at))

    def _quiet(self, job: Job, pools: tuple[str, ...], now: float) -> tuple[tuple[str, ...], float, float]:
        """Where the job may go now, until when it may not start, and when it may not any more."""
        if not job.spec.off_peak or not pools:
            return pools, job.not_before, inf
        windows = {pool: self._rules.pool(pool).off_peak for pool in pools}
        opening = {pool: opens(window, now) for pool, window in windows.items()}
        first = min(opening.values())
        quiet = tuple(pool for pool in pools if opening[pool] <= max(first, now))
        ends = min(shuts(windows[pool], now) for pool in quiet)
        later = min((at for at in opening.values() if at > first), default=inf)
        return quiet, max(job.not_before, first), min(ends, later)

    def _stream(self, job: Job, shape: Shape, policy: Policy, band: Hashable, overdue: bool, resting: float) -> Stream:
        user = job.user if self._by_user else ""
        name = (job.queue, user, shape, band, overdue, resting)
        stream = self._streams.get(name)
        if stream is None:
            self._made += 1
            stream = Stream(
                job.queue, user, job.user, job.project, shape, band, overdue, resting, policy,
                self._rules.queue(job.queue), self._made,
            )  # fmt: skip
            self._streams[name] = stream
        return stream

    def _open(self, stream: Stream) -> None:
        """Someone stands in it again."""
        assert self._state is not None
        shape = stream.shape
        if not shape.streams:
            for pool in shape.gang.pools:
                self.shapes.setdefault(pool, {})[shape] = None
        shape.streams[stream] = None
        self.lines[stream.queue][stream] = None
        self._user_streams[stream.whose][stream] = None
        if stream.policy.values:
            stream.worth = stream.policy.worth(stream.band, self._state.history)
        for pool in shape.gang.pools:
            if stream.policy.values:
                insort(self.dearest[pool], (-stream.worth, stream.number, stream))
            if stream.overdue:
                self.late[pool][stream] = None

    def _leave_line(self, queued: Queued) -> None:
        stream = queued.stream
        stream.remove(queued.entry)
        if stream.entries:
            return
        shape = stream.shape
        del shape.streams[stream], self.lines[stream.queue][stream], self._user_streams[stream.whose][stream]
        if stream.policy.values:
            self._drop_worth(stream)
        if stream.overdue:
            for pool in shape.gang.pools:
                self.late[pool].pop(stream, None)
        if not shape.streams:
            for pool in shape.gang.pools:
                del self.shapes[pool][shape]
                if not self.shapes[pool]:
                    del self.shapes[pool]
            self.hot.pop(shape, None)
        if len(self._streams) > 2 * len(self.queued) + 1000:
            self._streams = {name: one for name, one in self._streams.items() if one.entries}
            self._shapes = {name: one for name, one in self._shapes.items() if one.streams}

    def _drop_worth(self, stream: Stream) -> None:
        for pool in stream.shape.gang.pools:
            line = self.dearest[pool]
            del line[bisect_left(line, (-stream.worth, stream.number))]

    def goes_first(self, stream: Stream, pool: str | None = None) -> bool:
        """Whether the stream is overdue, and overdue jobs hold little enough of a pool to go ahead of the others."""
        if not stream.overdue:
            return False
        for name in stream.shape.gang.pools if pool is None else (pool,):
            held = sum(self.privileged(name).values()) + self._promised(name)
            if not held or held + stream.shape.weight <= self._lane(name) + EPSILON:
                return True
        return False

    def _promised(self, pool: str) -> float:
        """Accelerators that are kept for overdue jobs."""
        claims = [claim for claim in self.claims.values() if claim.pool == pool and claim.job.id in self.queued]
        return sum(weight_of(claim.seats) for claim in claims if self.queued[claim.job.id].stream.overdue)

    def privileged(self, pool: str) -> dict[str, float]:
        """Running gangs that became overdue before they started, the oldest first, as far as the rules protect them."""
        found, room = dict[str, float](), self._lane(pool)
        for _, _, name in self._late_running.get(pool, ()):
            weight = self.running[name].weight
            if any(found.values()) and weight > room + EPSILON:
                break
            found[name] = weight
            room -= weight
        return found

    def _lane(self, pool: str) -> float:
        """Accelerators that overdue jobs may hold ahead of the others."""
        return self.free.accelerators(pool)[1] * self._rules.overdue_share

    def _shape(self, job: Job, pools: tuple[str, ...]) -> Shape:
        spec = job.spec
        own = job.id if spec.placement in ("group", "locality") or _blamed(job) else ""
        topology = spec.topology
        name = (
            job.ask, spec.num_nodes, spec.min_nodes, pools, spec.placement, topology.require, topology.prefer, own,
        )  # fmt: skip
        shape = self._shapes.get(name)
        if shape is None or own:
            gang = Gang(job.ask, spec.num_nodes, pools, spec.placement, topology.require, topology.prefer)
            if own:
                gang = replace(gang, avoid=_blamed(job))
            shape = self._shapes[name] = Shape(gang, fewest_nodes(spec), job.ask.weight)
        return shape

    def near(self, job: Job) -> frozenset[str]:
        """What the job should be near to now."""
        spec = job.spec
        if spec.placement == "group":
            nodes = self._groups.get(f"{job.project}/{spec.group}") if spec.group else None
            return frozenset(node for node, count in (nodes or {}).items() if count)
        if spec.placement != "locality":
            return frozenset()
        last = {worker.seat.node for worker in job.attempt.workers} if job.attempt else set()
        return frozenset(spec.near or spec.data) | last

    def pools_of(self, job: Job, now: float) -> tuple[str, ...]:
        """Where the job may go, the preferred first."""
        assert self._state is not None
        spec = job.spec
        late = spec.use_spot and spec.deadline is not None and now >= self.spot_until(job)
        name = (job.queue, spec.pool, spec.kind, spec.use_spot, late)
        found = self._pools.get(name)
        if found is None:
            found = self._pools[name] = tuple(self._allowed(job, late))
        return found

    def spot_until(self, job: Job) -> float:
        """When a job with a deadline must take nodes that nobody takes away, to be done in time."""
        assert job.spec.deadline is not None
        left = remaining(job, self._rules)
        return job.submitted_at + job.spec.deadline - left * (1 + OVERRUN)

    def _allowed(self, job: Job, late: bool) -> list[str]:
        assert self._state is not None
        spec, rules = job.spec, self._rules.queue(job.queue)
        steady, spot = list[str](), list[str]()
        for pool in sorted(self._state.pools.values(), key=lambda pool: pool.name):
            rule = self._rules.pool(pool.name)
            if spec.pool not in (None, pool.name) or (rules.pools and pool.name not in rules.pools):
                continue
            if rule.kinds and spec.kind not in rule.kinds:
                continue
            taken_away = pool.spot if rule.spot is None else rule.spot
            (spot if taken_away else steady).append(pool.name)
        if not spec.use_spot:
            return steady
        return steady or spot if late else spot + steady

    # --- running ------------------------------------------------------------------------------------------------------
    def _hold(self, job: Job, seats: tuple[Seat, ...], attempt: int, now: float, pool: str) -> Running:
        known = Running(
            job,
            attempt,
            now,
            pool,
            weight_of(seats),
            seats,
            None,
            overdue=False,
            worth=inf,
            leaving=False,
        )
        self.running[job.id] = known
        self._account(job, known.pool, seats, +1)
        if self._fair and not self._building:
            at = job.attempt.planned_at if job.active and job.attempt else now
            self.shares.change(job.project, job.queue, job.user, amount(job.ask, len(seats)), +1, at)
        self._users[job.user][job.id] = None
        if job.spec.group:
            self._groups[f"{job.project}/{job.spec.group}"].update(seat.node for seat in seats)
        insort(self.cheapest[known.pool], (known.worth, job.number, job.id))
        if job.spec.min_nodes is not None and len(seats) < job.spec.num_nodes:
            self.elastic[job.id] = None
        return known

    def _refresh(self, known: Running, now: float) -> None:
        job = known.job
        assert job.attempt is not None
        known.since = job.attempt.running_at or job.attempt.planned_at
        rules, policy = self._queue(job.queue)
        standing = policy.standing(job, self._rules, rules, now)
        known.band = standing.band
        self._mind_age(known, rules.overdue is not None and job.waited >= rules.overdue)
        if job.stop is not None:
            self._uncount(known)
        elif known.leaving:  # a round wanted it to, and its plan came to nothing
            known.leaving, known.counted = False, True
            self.leaving[known.pool].discard(job.id)
            self._account(job, known.pool, known.seats, +1)
        self._value(known)
        if self._reserves:
            self._expect_end(known)
        self.stirred[known.pool] = None
        # Nobody asks it to leave before its least run time, or its turn, is over: nothing changes until then.
        safe = safe_until(known, self._rules, rules)
        self._wake(job.id, safe if safe > now else standing.until, known.pool)

    def _expect_end(self, known: Running) -> None:
        end = known.since + remaining(known.job, self._rules)
        if end != known.ends:
            self._drop_end(known)
            known.ends = end
            insort(self.ending[known.pool], (end, known.job.number, known.job.id))

    def _drop_end(self, known: Running) -> None:
        if known.ends < inf:
            line = self.ending[known.pool]
            del line[bisect_left(line, (known.ends, known.job.number, known.job.id))]

    def _mind_age(self, known: Running, overdue: bool) -> None:
        if overdue != known.overdue:
            assert known.job.attempt is not None
            known.overdue = overdue
            entry = (known.job.attempt.planned_at, known.job.number, known.job.id)
            line = self._late_running[known.pool]
            if overdue:
                insort(line, entry)
            else:
                line.remove(entry)

    def _value(self, known: Running) -> None:
        assert self._state is not None
        job = known.job
        rules, policy = self._queue(job.queue)
        if not policy.values:
            return
        worth = policy.worth(known.band, self._state.history)
        if known.leaving or not rules.preemptible:
            worth = inf
        if worth != known.worth:
            line = self.cheapest[known.pool]
            del line[bisect_left(line, (known.worth, job.number, job.id))]
            known.worth = worth
            insort(line, (worth, job.number, job.id))
            self.stirred[known.pool] = None

    def _learn(self, users: dict[str, None]) -> None:
        """What is expected of the users' jobs has changed; of everyone's, now and then."""
        assert self._state is not None
        if not self._learns:
            return
        if self._epoch != self._state.history.epoch:
            self._epoch = self._state.history.epoch
            for known in self.running.values():
                self._value(known)
            for streams in self.lines.values():
                for stream in streams:
                    self._revalue(stream)
            return
        for user in users:
            for name in self._users.get(user, ()):
                self._value(self.running[name])
            for stream in self._user_streams.get(user, ()):
                self._revalue(stream)

    def _revalue(self, stream: Stream) -> None:
        assert self._state is not None
        if not stream.policy.values:
            return
        worth = stream.policy.worth(stream.band, self._state.history)
        if worth != stream.worth:
            self._drop_worth(stream)
            stream.worth = worth
            for pool in stream.shape.gang.pools:
                insort(self.dearest[pool], (-worth, stream.number, stream))
                self.stirred[pool] = None

    def _let_go(self, known: Running) -> None:
        job = known.job
        line = self.cheapest[known.pool]
        del line[bisect_left(line, (known.worth, job.number, job.id))]
        if self._fair:
            attempt = job.attempt
            ended = attempt.ended_at if attempt is not None and attempt.number == known.attempt else None
            at = self._now if ended is None else ended
            self.shares.change(job.project, job.queue, job.user, amount(job.ask, len(known.seats)), -1, at)
        if known.counted:
            self._account(job, known.pool, known.seats, -1)
        if known.overdue:
            self._late_running[known.pool] = [e for e in self._late_running[known.pool] if e[2] != job.id]
        self._drop_end(known)
        self.leaving[known.pool].discard(job.id)
        self._users[job.user].pop(job.id, None)
        self.elastic.pop(job.id, None)
        self.stirred[known.pool] = None
        if job.spec.group:
            self._groups[f"{job.project}/{job.spec.group}"].subtract(seat.node for seat in known.seats)
        self._loosen()

    def _account(self, job: Job, pool: str, seats: tuple[Seat, ...], sign: int) -> None:
        """Counts the gang against its queue's quota and against the limits on how many run."""
        weight = weight_of(seats)
        self.quotas.change(job.queue, pool, sign * weight)
        counts = self.counts
        counts["queue", job.queue] += sign
        counts["user", job.queue, job.user] += sign
        counts["project", job.project] += sign
        if self.limited:
            self.weights["user", job.queue, job.user] += sign * weight
            self.weights["project", job.project] += sign * weight

    # --- what a round does --------------------------------------------------------------------------------------------
    def begin(self, queued: Queued, seats: tuple[Seat, ...], now: float) -> None:
        """The job starts: it leaves its line, and what it takes is gone."""
        job = queued.job
        claimed = job.id in self.claims
        self._forget(job.id, starts=True)
        if claimed:
            self._unclaim(job.id)
        else:  # what was kept for it was taken from the others then
            self.free.take(seats, job.ask)
        known = self._hold(job, seats, (job.attempt.number if job.attempt else 0) + 1, now, self.pool_of(seats))
        if self._reserves:
            self._expect_end(known)
        if queued.stream.overdue:
            known.overdue = True
            insort(self._late_running[known.pool], (now, job.number, job.id))
        self._pending[job.id] = None

    def claim(self, job: Job, seats: tuple[Seat, ...]) -> None:
        """The seats are kept for the job until those who sit there have left."""
        self._pending[job.id] = None
        self._claim(job, seats)

    def let_go(self, name: str, now: float) -> None:
        """The seats are no longer kept for the job."""
        self._pending[name] = None
        nodes = [seat.node for seat in self.claims[name].seats]
        self._unclaim(name)
        for node in nodes:
            self._sync_node(node, now)
        if name in self.queued:
            shape = self.queued[name].stream.shape
            self.hot[shape] = None
            for pool in shape.gang.pools:
                self.stirred[pool] = None

    def claims_on(self, node: str) -> Iterable[Claimed]:
        return self._node_claims[node].values() if node in self._node_claims else ()

    def leave(self, known: Running) -> None:
        """The gang is asked to go."""
        self._uncount(known)
        self._value(known)
        self._pending[known.job.id] = None

    def _uncount(self, known: Running) -> None:
        known.leaving = True
        self.leaving[known.pool].add(known.job.id)
        if known.counted:
            known.counted = False
            self._account(known.job, known.pool, known.seats, -1)
            self._loosen()

    def _loosen(self) -> None:
        """Fewer count against limits and quotas now: whoever they held back is looked at again."""
        if self.limited:
            for pool, shapes in self.shapes.items():
                self.hot.update(shapes)
                self.stirred[pool] = None

    def _claim(self, job: Job, seats: tuple[Seat, ...]) -> None:
        claim = self.claims[job.id] = Claimed(job, seats, self.pool_of(seats))
        for seat in seats:
            self._node_claims[seat.node][job.id] = claim
            self._dirty.add(seat.node)
        self._account(job, claim.pool, seats, +1)

    def pool_of(self, seats: tuple[Seat, ...]) -> str:
        assert self._state is not None
        node = self._state.nodes.get(seats[0].node) if seats else None
        return node.pool if node else ""

    def wake_at(self) -> float | None:
        """When time alone changes where someone stands; None while nobody waits."""
        if not self.queued:
            return None
        found = self._turn_at
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


def safe_until(known: Running, rules: Rules, queue: QueueRules) -> float:
    """Until when nobody may ask the gang to leave, but to take back what is his own.

    Whoever was stopped often is left alone for longer and longer: so everyone gets done in the end, whatever the rules.
    """
    often = known.job.charges.get("preempted", 0) - OFTEN
    guard = rules.preemption.min_run if often <= 0 else max(rules.preemption.min_run, LEAST) * 2.0 ** min(often, 30)
    return known.since + max(guard, queue.slice or 0.0)


def weight_of(seats: tuple[Seat, ...]) -> float:
    """Accelerators that the seats take."""
    return sum([len(seat.devices) * seat.share for seat in seats]) / WHOLE


def _blamed(job: Job) -> frozenset[str]:
    """Nodes that the job's last attempt failed on by their fault."""
    attempt = job.attempt
    if attempt is None or attempt.reason is None or attempt.outcome in (None, "succeeded", "stopped"):
        return frozenset()
    node = attempt.reason.data.get("node")
    return frozenset({node}) if node and attempt.reason.category in ("node", "worker") else frozenset()
