"""Steps 2 and 3 of a round: which jobs start now.

Every queue has its own backfill rule for the jobs behind one that does not fit: `none` lets no job pass, `easy` makes a
reservation for the first job that does not fit, `conservative` for the first `depth` jobs, and `greedy` lets every job
pass that fits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from muster.core.job import Seat
from muster.core.plan import Claim, Start
from muster.core.resources import WHOLE, Resources
from muster.core.state import State
from muster.sched.backfill import expected_duration
from muster.sched.board import Board
from muster.sched.claims import Claimed
from muster.sched.elastic import most_that_fit, room_at_end
from muster.sched.gang_requests import GangRequests
from muster.sched.gate import allowance, gate
from muster.sched.order import Key
from muster.sched.overdue import goes_first
from muster.sched.place import GangRequest
from muster.sched.pool_choice import PoolChoice
from muster.sched.queue_cursor import QueueCursor
from muster.sched.queued_jobs import Line, Queued, Shape, Stream
from muster.sched.quota import EPSILON
from muster.sched.reservations import Reservations
from muster.sched.turn_order import ByRank, ByShare, Source, TurnOrder

TRIED = 400  # maximum backfill attempts of one round beside reservations
WALKED = 8  # jobs of a stream that are tried beside reservations: their expected run times may differ


@dataclass(slots=True)
class Filling:
    state: State
    board: Board
    now: float
    starts: list[Start] = field(default_factory=list)
    claims: list[Claim] = field(default_factory=list)
    reservations: Reservations = field(init=False)
    _walks: dict[str, QueueCursor] = field(default_factory=dict)
    _open: set[Shape | str] = field(default_factory=set)  # shapes and queues of which a job may still start
    _failed: set[Shape] = field(default_factory=set)
    _headroom: dict[tuple[str, str], float] = field(default_factory=dict)  # (queue, pool), until something starts
    _tried: int = 0
    _too_long: dict[Shape, float] = field(default_factory=dict)  # → end time from which a job delays a reservation
    _again: dict[Shape, None] = field(default_factory=dict)  # to try again: capacity is not their only obstacle
    _loose: Shape | None = None  # the last one that was found able to start
    _by_rank: bool = field(init=False)
    _gated: bool = field(init=False)  # whether limits or quotas exist
    closing: bool = field(init=False)  # whether any pool has maintenance planned
    gang: Callable[[Queued], GangRequest] = field(init=False)
    _requests: GangRequests = field(init=False)
    _pool_choice: PoolChoice = field(init=False)

    def __post_init__(self) -> None:
        self._pool_choice = PoolChoice(self.state, self.board)
        self._requests = GangRequests(self.state, self.board, self.now)
        self.closing, self.gang = self._requests.closing, self._requests.of
        self.reservations = Reservations(self.state, self.board, self.now, self.gang, self.closing)
        self._by_rank = self.state.rules.between == "rank"
        self._gated = self.board.limits.limited or self.board.limits.quotas.any

    def start_claimed(self) -> None:
        """Starts jobs whose reserved seats are free; releases claims on seats that can't be used any more."""
        if not self.board.claims.by_job:
            return
        claims = sorted(self.board.claims.by_job.items(), key=lambda item: item[1].job.number)
        waiting = [(name, claim) for name, claim in claims if name in self.board.waiting.queued]
        for name, claim in waiting:  # before any start, while nodes are as in the state
            nodes = [self.state.nodes.get(seat.node) for seat in claim.seats]
            late = self.closing and any(
                self.board.free.slots[seat.node].closes < self._requests.over(self.board.waiting.queued[name].job)
                for seat in claim.seats
                if seat.node in self.board.free.slots
            )
            gone = claim.pool in self.board.pools.away
            if late or gone or any(node is None or node.health != "healthy" for node in nodes):
                self.claims.append(Claim(name))
                self.board.release_claim(name, self.now)
        taken: dict[str, Resources] = {}
        for name, claim in waiting:
            if name in self.board.claims.by_job and self._free(claim, taken):
                self._start(self.board.waiting.queued[name], claim.seats)

    def start_restarting(self) -> None:
        """Starts jobs that lost a node of a pool with spares, before all others and beside their reservations."""
        if not self.board.waiting.restarting:
            return
        jobs = [self.board.waiting.queued[name] for name in self.board.waiting.restarting]
        for queued in sorted(jobs, key=lambda one: one.job.number):
            if queued.stream.not_before <= self.now and self._try(queued):
                # What the gang leaves free on a spare is open to all from now on.
                self.board.waiting.mark_pool(queued.stream.shape.gang.spares)

    def start_what_fits(self) -> bool:
        """Starts queued jobs that fit. True if another pass may start more: jobs started, and there are reservations or
        overdue jobs."""
        before = len(self.starts)
        if self.board.order_may_have_changed:
            for waiting in self.board.waiting.shapes.values():
                self.board.changes.shapes.update(waiting)
        shapes = [shape for shape in self.board.changes.shapes if not self._stuck(shape)]
        if not shapes:
            self.board.changes.shapes = {}
            return False
        lines, queues = self._lines(shapes), self._ordered_queues(shapes)
        self._open = {*queues, *[shape for line in lines.values() for shape in line]}
        if not lines and len(queues) == 1:
            sources = self._serve_alone(queues[0])
        else:
            sources = [(line, self._best(line, there), self._streams(line, there)) for line, there in lines.items()]
            sources += [(self._where(queue)[:2], self._best(queue), (queue,)) for queue in queues]
        turn_order: TurnOrder
        if self._by_rank:
            turn_order = ByRank(self.key, [source for _, _, there in sources for source in there])
        else:
            turn_order = ByShare(self.board.shares, self.key, self._standing, self._where, sources)
        while not self._open <= self._failed and (source := turn_order.pop()) is not None:
            if isinstance(source, str):
                self._open.discard(source)
                for again in self._serve(source):
                    self._open.add(again.shape if isinstance(again, Stream) else again)
                    turn_order.push(again)
            elif source.shape not in self._failed and self._fill(source):
                turn_order.push(source)
        worth_it = len(self.starts) > before and bool(self.reservations.any or self.board.waiting.any_overdue)
        self.board.changes.shapes, self._again = self._again, {}
        self._walks, self._too_long, self._open = {}, {}, set()
        self.reservations.clear()
        return worth_it

    def key(self, source: Source) -> Key:
        """The sort key of a source's first job, without fair-share scores."""
        if isinstance(source, str):
            return self._walk(source).key if self._by_rank else self._queue_key(source)
        rank = source.policy.rank(source.band, source.entries[0][0], self.state.history)
        return (self._standing(source), *rank)

    def _standing(self, source: Source) -> float:
        """The first part of the key, lower is better: overdue jobs and jobs within their queue's quota go first."""
        if isinstance(source, str):
            return self.key(source)[0]
        standing = 1.0 if source.overdue and goes_first(self.board, source) else 2.0
        return standing - 1.0 if self._own(source.queue, source.shape) else standing

    def place_in_queue(self, stream: Stream) -> Key:
        """The part of the sort key that tells streams of one queue apart and is the same for all jobs of a stream.

        Project and queue are the same for all of them: a start would otherwise move every stream back, for nothing.
        """
        standing = self._standing(stream)
        if self._by_rank:
            return (standing,)
        return (standing, self.board.shares.user(stream.queue, stream.user))

    def fair_key(self, stream: Stream) -> Key:
        """The sort key of a stream's first job, including fair-share scores."""
        key = self.key(stream)
        if self._by_rank:
            return key
        shares, queue = self.board.shares, stream.queue
        return (key[0], shares.project(stream.project), *shares.queue(queue), shares.user(queue, stream.user), *key[1:])

    def _where(self, source: Source) -> tuple[str, str, str]:
        """Project, queue and user; user "" where a whole queue is served in its order."""
        if isinstance(source, str):
            return next(iter(self.board.waiting.streams[source])).project, source, ""
        return source.project, source.queue, source.user

    def _own(self, queue: str, shape: Shape) -> bool:
        """Whether a job of this shape would start within its queue's quota."""
        quotas = self.board.limits.quotas
        if not self._gated or not quotas.any:
            return False
        for pool in shape.gang.pools:
            room = self._headroom.get((queue, pool))
            if room is None:
                room = self._headroom[queue, pool] = quotas.headroom(queue, pool)
            if room and shape.weight <= room + EPSILON:
                return True
        return False

    # --- order of sources ---------------------------------------------------------------------------------------------
    def _lines(self, shapes: list[Shape]) -> dict[Line, list[Shape]]:
        """Where any job that fits may start, and requests of which one might: something has changed since they did not
        fit."""
        found, rules = dict[Line, list[Shape]](), self.board.rules
        for shape in shapes:
            for line in shape.lines:
                if not rules.ordered or rules.queue(line[1])[0].backfill == "greedy":
                    found.setdefault(line, []).append(shape)
        return found

    def _ordered_queues(self, shapes: list[Shape]) -> list[str]:
        """Queues served in their order. They are included even if nothing changed for them: they may hold reservations
        in these pools."""
        rules, found = self.board.rules, dict[str, None]()
        for pool in {pool for shape in shapes for pool in shape.gang.pools} if rules.ordered else ():
            for shape in self.board.waiting.shapes.get(pool, ()):
                found.update((queue, None) for _, queue in shape.lines if rules.queue(queue)[0].backfill != "greedy")
        return list(found)

    def _streams(self, line: Line, shapes: list[Shape]) -> Iterator[Source]:
        return (stream for shape in shapes for stream in shape.lines[line] if stream.not_before <= self.now)

    def _best(self, where: Line | str, shapes: Sequence[Shape] = ()) -> float:
        """A standing than which no stream of these shapes is better, or that of a queue that is served in its order."""
        if self._by_rank:
            return 0.0  # nobody asks
        if isinstance(where, str):
            return self._standing(where)
        best = 1.0 if self.board.waiting.any_overdue else 2.0
        return best - 1.0 if any(self._own(where[1], shape) for shape in shapes) else best

    def _serve_alone(self, queue: str) -> list[tuple[Line, float, Iterable[Source]]]:
        """Serves the only queue: no order between sources is needed. Returns what is left to try."""
        sources: list[Source] = [queue]
        while sources == [queue]:
            sources = [] if self.reservations.deferred and self._all_stuck(queue) else self._serve(queue)
        by_line = dict[Line, list[Source]]()
        for source in sources:
            by_line.setdefault(self._where(source)[:2], []).append(source)
        self._open = {source if isinstance(source, str) else source.shape for source in sources}
        return [(line, 0.0, there) for line, there in by_line.items()]

    def _stuck(self, shape: Shape) -> bool:
        """Whether the shape can't fit: nothing has become free since it did not fit, or the free counts are too low."""
        if shape in self._failed:
            return True
        free, pools = self.board.free, shape.gang.pools
        grew = tuple([free.grew(pool) for pool in pools])
        if shape.blocked != grew:
            gang = shape.gang if shape.fewest == shape.gang.nodes else replace(shape.gang, nodes=shape.fewest)
            if free.could(gang):
                return False
            shape.blocked = grew
        self._failed.add(shape)
        return True

    def _all_stuck(self, queue: str) -> bool:
        """Whether no job of the queue can start, whatever is reserved for whom."""
        if self._gated:
            return False  # a job that a limit holds back is tried again
        streams, now = self.board.waiting.streams[queue], self.now
        loose = self._loose.streams if self._loose is not None and not self._stuck(self._loose) else ()
        if any(stream in streams and stream.not_before <= now for stream in loose):
            return False
        for stream in streams:
            if stream.not_before <= now and not self._stuck(stream.shape):
                self._loose = stream.shape
                return False
        return True

    def _queue_key(self, queue: str) -> Key:
        """The key of a queue that is served in its order, under fair share. It does not look at the queue's jobs."""
        quotas = self.board.limits.quotas
        own = quotas.any and any(quotas.headroom(queue, pool) >= 1.0 for pool in self.board.waiting.shapes)
        return (2.0 - own,)

    def _walk(self, queue: str) -> QueueCursor:
        walk = self._walks.get(queue)
        if walk is None:
            walk = self._walks[queue] = QueueCursor(self, queue)
        return walk

    # --- starting jobs ------------------------------------------------------------------------------------------------
    def _serve(self, queue: str) -> list[Source]:
        """Tries the next job of a queue that is served in its order. Returns the sources to try after it."""
        if self._kept_already(queue):
            return self._fillers(queue)
        queued = self._walk(queue).step()
        if queued is None:
            return []
        if self._try(queued) or queued.job.id in self.board.claims.by_job:
            return [queue] if self.board.waiting.streams[queue] else []
        shape, rule = queued.stream.shape, queued.stream.rules.backfill
        if not self._open_pools(queued):
            self._again[shape] = None
            return [queue]  # its own limit holds it back; the jobs behind it may still start
        if rule == "none":
            return []
        deeper = self.reservations.add(queued, self.state.rules.depth if rule == "conservative" else 1)
        return [queue] if deeper and rule == "conservative" else self._fillers(queue)

    def _kept_already(self, queue: str) -> bool:
        """Whether each pool of an `easy` queue already has its one reservation, so that only backfill remains."""
        if not self.reservations.any or self.state.rules.queue(queue).backfill != "easy":
            return False
        streams = self.board.waiting.streams[queue]
        return all(self.reservations.is_in(pool) for stream in streams for pool in stream.shape.gang.pools)

    def _fillers(self, queue: str) -> list[Source]:
        return [
            stream for stream in self.board.waiting.streams[queue]
            if not self._stuck(stream.shape) and stream.not_before <= self.now
        ]  # fmt: skip

    def _fill(self, stream: Stream) -> bool:
        """Starts the first job of the stream that may start."""
        careful = self.reservations.any or self.board.claims.by_job or self.closing
        for index in range(min(len(stream.entries), WALKED if careful else 1)):
            self._tried += 1
            if self._tried > TRIED and careful:
                self._again[stream.shape] = None
                return False
            if self._try(self.board.waiting.queued[stream.entries[index][2]]):
                return True
            if stream.shape in self._failed:
                break
        return False

    def _try(self, queued: Queued) -> bool:
        shape = queued.stream.shape
        if queued.job.id in self.board.claims.by_job:
            return False  # it has reserved seats and only waits for them
        if shape in self._failed and not self._gated:
            return False
        pools = self._open_pools(queued)
        if len(pools) < len(shape.gang.pools):
            self._again[shape] = None
        if not pools or shape in self._failed:
            return False
        if shape in self._too_long and self._ends(queued) >= self._too_long[shape]:
            self._again[shape] = None
            return False
        whole = len(pools) == len(shape.gang.pools)
        gang, pools = self.gang(queued), self._pool_choice.sort(pools, queued.job)
        if pools != gang.pools:
            gang = replace(gang, pools=pools)
        seats = self._seats(queued, gang)
        if seats is None:
            if gang.ends > self.now:
                self._again[shape] = None  # a shorter job of the same shape may end before maintenance begins
            elif whole:
                self._failed.add(shape)
                shape.blocked = tuple([self.board.free.grew(pool) for pool in shape.gang.pools])
            return False
        pool = self.board.pool_of(seats)
        if self.reservations.is_in(pool):
            if len(seats) < gang.nodes:
                gang = gang.within(pool, len(seats))  # as many nodes as its queue may have, anywhere in the pool
            ends = self._ends(queued)
            found = self.reservations.seats_beside(gang, shape.fewest, seats, pool, ends)
            if found is not seats:
                self._again[shape] = None
            if found is None:
                self._too_long[shape] = ends
                return False
            seats = found
        self._start(queued, seats)
        return True

    def _seats(self, queued: Queued, gang: GangRequest) -> tuple[Seat, ...] | None:
        """Seats for as many workers as fit and as the job's limits and quota allow."""
        shape = queued.stream.shape
        if shape.fewest < gang.nodes and (room := room_at_end(queued.job, self.now)) < gang.nodes:
            gang = replace(gang, nodes=max(shape.fewest, int(room)))
        if shape.fewest == gang.nodes or not shape.each:
            return most_that_fit(self.board, gang, shape.fewest)
        for pool in gang.pools:
            room = allowance(self.board, self.state.rules, queued.job, pool)
            most = int(min(gang.nodes, (room + EPSILON) // shape.each))
            seats = most_that_fit(self.board, gang.within(pool, most), shape.fewest) if most >= shape.fewest else None
            if seats is not None:
                return seats
        return None

    def _ends(self, queued: Queued) -> float:
        """The expected end of the job if it starts now."""
        return self.now + expected_duration(queued.job, self.state.rules, self.now)

    def _open_pools(self, queued: Queued) -> tuple[str, ...]:
        shape, pools = queued.stream.shape, queued.stream.shape.gang.pools
        if not self._gated:
            return pools
        rules, weight = self.state.rules, shape.each * shape.fewest
        return tuple([pool for pool in pools if gate(self.board, rules, queued.job, pool, weight) is None])

    def _start(self, queued: Queued, seats: tuple[Seat, ...]) -> None:
        job = queued.job
        self.starts.append(Start(job.id, seats))
        self._pool_choice.add(self.board.pool_of(seats))
        self.board.begin(queued, seats, self.now)
        self._headroom.clear()
        self.reservations.started()

    def _free(self, claim: Claimed, taken: dict[str, Resources]) -> bool:
        """Whether all claimed seats are free now, with their CPUs and memory. If so, adds them to `taken`."""
        ask = claim.job.ask
        for seat in claim.seats:
            node = self.state.nodes[seat.node]
            for device in seat.devices:
                if node.parts.get(device, WHOLE if node.free_devices >> device & 1 else 0) < seat.share:
                    return False
            left = node.free - taken.get(seat.node, Resources())
            if left.milli_cpus < ask.milli_cpus or left.memory < ask.memory:
                return False
        for seat in claim.seats:
            taken[seat.node] = taken.get(seat.node, Resources()) + ask
        return True
