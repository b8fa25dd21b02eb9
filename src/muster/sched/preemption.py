"""Steps 4 and 5 of a round: which gangs are preempted for which jobs, the seats reserved meanwhile, and growth."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from heapq import heappop, heappush
from itertools import islice
from math import inf

from muster.core.plan import Claim, Preempt
from muster.core.reasons import Reason, reason
from muster.core.rules import Rules
from muster.core.state import State
from muster.sched.board import Board
from muster.sched.elastic import fewer, growth, smaller
from muster.sched.failed_preemptions import EVERYWHERE
from muster.sched.fill import Filling
from muster.sched.gate import kept_back, over_borrowing, over_limit
from muster.sched.order import Key
from muster.sched.overdue import goes_first, privileged
from muster.sched.preemption_rules import PreemptionRules
from muster.sched.queued_jobs import Queued, Stream
from muster.sched.quiet_pools import is_quiet, note_quiet
from muster.sched.quota import EPSILON
from muster.sched.running_gangs import Running
from muster.sched.victims import Freed, find_victims

TRIES = 16  # failed attempts to preempt after which a round stops trying
LATE = 4  # overdue streams considered for one pool
CONSIDERED = 64  # streams considered for one pool, highest value first

Made = tuple[list[Preempt], list[Claim]]
_Turn = tuple[Key, int, int, Stream]  # order of preemption requests: key, first job's number, order of arrival


def preempt_for_queued(state: State, board: Board, filling: Filling, now: float) -> Made:
    """Preempts for queued jobs, best rank first, in pools where possible victims or waiting jobs have changed."""
    yields, claims = list[Preempt](), list[Claim]()
    pools, board.changes.pools = board.changes.pools, {}
    if not state.rules.preemption.enabled or not board.waiting.queued or not board.gangs.running:
        return yields, claims
    if all(is_quiet(board, pool, now) for pool in pools):
        return yields, claims
    mark = board.free.mark()
    with board.free.fixed_spares():
        _preempt(state, board, filling, now, pools, yields, claims)
    board.free.undo(mark)
    return yields, claims


def _preempt(
    state: State,
    board: Board,
    filling: Filling,
    now: float,
    pools: dict[str, None],
    yields: list[Preempt],
    claims: list[Claim],
) -> None:
    for pool in pools:
        board.waiting.quiet.pop(pool, None)  # what the search finds out is not in it
    by_pool = {pool: list(_candidate_streams(state, board, pool, now)) for pool in pools}
    asking = dict.fromkeys([stream for streams in by_pool.values() for stream in streams])
    if not any(_may_help(state.rules, board, filling, stream, now) for stream in asking):
        for pool, streams in by_pool.items():  # mostly so: then their order does not matter
            note_quiet(board, pool, streams)
        return
    line, seen = list[_Turn](), set[Stream]()
    _line_up(line, seen, asking, filling)
    failed_preemptions = 0
    while line and failed_preemptions < TRIES:
        turn = heappop(line)
        queued = _next(board, turn[-1])
        room = _room(state.rules, board, filling, queued, now) if queued is not None else None
        if queued is None or room is None:
            failed_preemptions += queued is not None
            continue
        _record_preemption(board, queued, room, state.rules, yields, claims)
        heappush(line, turn)
        pool = board.pool_of(room.seats)
        if pool not in pools:  # what changed there just now may help streams further down the order
            pools[pool] = None
            _line_up(line, seen, _candidate_streams(state, board, pool, now), filling, turn)


def grow(state: State, board: Board, now: float) -> Made:
    """Elastic gangs with a fresh checkpoint take free nodes of pools that no queued job waits for. Those in a cluster's
    queue that has fewer nodes free ask for so many."""
    yields, claims = list[Preempt](), list[Claim]()
    # Sorted by job number, so that the order in which this process saw them has no effect.
    elastic = [board.gangs.running[name] for name in board.gangs.elastic]
    for known in sorted(elastic, key=lambda known: known.job.number):
        name = known.job.id
        if known.pool in board.pools.away:
            continue
        if less := fewer(known):
            message = f"asks for {len(less)} of {len(known.seats)} nodes, because the cluster has no more free"
            yields.append(Preempt(name, reason("resizing", message), 0.0))
            claims.append(Claim(name, less))
            board.leave(known)
            board.claim(known.job, less)
            continue
        if known.pool in board.waiting.shapes:
            continue
        seats = growth(board, state.rules, known, now)
        if seats is not None:
            message = f"grows from {len(known.seats)} to {len(seats)} nodes, which nobody else wants"
            yields.append(Preempt(name, reason("resizing", message), state.rules.preemption.grace))
            claims.append(Claim(name, seats))
            board.leave(known)
            board.claim(known.job, seats)  # the next gang that grows must see these seats as taken
            board.free.take(seats[len(known.seats) :], known.job.ask)
    return yields, claims


def _line_up(line: list[_Turn], seen: set[Stream], asking: Iterable[Stream], filling: Filling, *after: _Turn) -> None:
    """Adds streams to the heap, each once. With `after`, streams that sort before it are skipped: they are too late."""
    for stream in asking:
        if stream not in seen:
            seen.add(stream)
            turn = (filling.fair_key(stream), stream.entries[0][1], len(seen), stream)
            if not after or turn[:2] > after[0][:2]:
                heappush(line, turn)


def _candidate_streams(state: State, board: Board, pool: str, now: float) -> Iterator[Stream]:
    """Streams of the pool whose first job may have the right to preempt."""
    if not board.gangs.by_queue(pool):
        return
    least = board.gangs.least_value(pool) * state.rules.preemption.margin
    for negative, _, stream in islice(board.waiting.most_valuable[pool], CONSIDERED):
        if -negative <= least:
            break
        if stream.rules.preempts and stream.not_before <= now:
            yield stream
    for stream in board.waiting.longest_overdue(pool, LATE):
        if stream.rules.preempts and stream.not_before <= now and goes_first(board, stream):
            yield stream
    yield from _owners(state, board, pool, now)


def _owners(state: State, board: Board, pool: str, now: float) -> Iterator[Stream]:
    """Streams of queues that reclaim lent quota, and of queues with time slices."""
    quotas = board.limits.quotas
    borrowed = quotas.lent(pool)
    if not borrowed and not board.rules.slices:
        return
    for queue, streams in board.waiting.streams.items():
        rules = state.rules.queue(queue)
        if not streams or not rules.preempts:
            continue
        turns = rules.slice is not None
        room = quotas.headroom(queue, pool) if borrowed else 0.0
        if not turns and not room:
            continue
        for stream in streams:
            preemption = turns or stream.shape.each * stream.shape.fewest <= room + EPSILON
            if preemption and stream.not_before <= now and pool in stream.shape.gang.pools:
                yield stream


def _next(board: Board, stream: Stream) -> Queued | None:
    """The first job of the stream that has no reserved seats yet."""
    for _, _, name in stream.entries:
        if name not in board.claims.by_job:
            return board.waiting.queued[name]
    return None


def _may_help(rules: Rules, board: Board, filling: Filling, stream: Stream, now: float) -> bool:
    """Whether a request of the stream's first job may succeed: something has changed since it failed."""
    if not stream.failed_preemptions:
        return True
    queued = _next(board, stream)
    if queued is None:
        return False
    shape = stream.shape
    for pool in shape.gang.pools:
        if _still_fails(board, queued, pool, now):
            continue
        there = filling.gang(queued).within(pool, shape.fewest)
        weight = there.ask.weight * shape.fewest
        if PreemptionRules(board, rules, queued, pool, weight, now, remember=True).may_help(there):
            return True
    return False


def _still_fails(board: Board, queued: Queued, pool: str, now: float) -> bool:
    """A quick check for the usual case: such a request has failed, and on the nodes of which something has changed
    since, gangs have too high a value."""
    stream = queued.stream
    failed = stream.failed_preemptions.get(pool)
    if failed is None or stream.rules.escalation or board.limits.quotas.any:
        return False
    value = inf if stream.overdue and goes_first(board, stream, pool) else stream.value
    if value > failed.value or queued.job.priority > failed.priority:
        return False
    log, slots, prices = board.gangs.easier_nodes[pool], board.free.slots, board.prices
    margin, need = board.rules.rules.preemption.margin, stream.shape.gang.ask.accelerators
    if failed.seen != log.end and prices.cheapest(slots, pool, failed.seen, need, now) * margin < value:
        names = log.since(failed.seen)
        if names is None or EVERYWHERE in names:
            return False
        for name in names:
            slot = slots.get(name)
            if slot is not None and name not in failed.counted and prices.least(slot, need, now) * margin < value:
                return False
    if board.limits.quotas.borrowers(pool).keys() <= failed.borrowers and privileged(board, pool) >= failed.protected:
        failed.seen = log.end
        return True
    return False


def _room(rules: Rules, board: Board, filling: Filling, queued: Queued, now: float) -> Freed | None:
    shape, job = queued.stream.shape, queued.job
    weight = shape.each * shape.fewest
    gang = None
    for pool in shape.gang.pools:
        if _still_fails(board, queued, pool, now):
            continue
        if over_limit(board, rules, job, weight) or over_borrowing(board, job, pool, weight):
            continue
        if gang is None:
            gang = filling.gang(queued)
            if gang.ends > now:
                gang = replace(gang, ends=gang.ends + rules.preemption.grace)  # it starts after the victims' grace
        room = find_victims(board, rules, queued, gang.within(pool, shape.fewest), now, remember=True)
        if room is not None and not kept_back(board, job, pool, weight, sum(k.weight for k in room.victims)):
            return room
    return None


def _record_preemption(
    board: Board, queued: Queued, room: Freed, rules: Rules, yields: list[Preempt], claims: list[Claim]
) -> None:
    """Records the preemption: a Yield for each victim, a Claim on the seats. An elastic victim may keep some nodes."""
    job = queued.job
    taken = {seat.node for seat in room.seats}
    board.claim(job, room.seats)
    claims.append(Claim(job.id, room.seats))
    for known in room.victims:
        board.free.give(known.seats, known.job.ask)
    board.free.take(room.seats, job.ask)
    for known in room.victims:
        rest = () if room.whole else smaller(known, taken)
        grace = min(_grace(known, rules), rules.reclaim) if room.why == "reclaim" else _grace(known, rules)
        yields.append(Preempt(known.job.id, _why(known, queued, room, len(rest)), grace))
        board.leave(known)
        if rest:
            claims.append(Claim(known.job.id, rest))
            board.claim(known.job, rest)
            board.free.take(rest, known.job.ask)


def _grace(known: Running, rules: Rules) -> float:
    """Seconds to save a checkpoint: what the job asks for, at most what the policy allows."""
    return min(known.job.spec.stop_grace, rules.preemption.grace)


def _why(known: Running, queued: Queued, room: Freed, left: int) -> Reason:
    job, other = queued.job, known.job
    if left:
        message = f"shrinks from {len(known.seats)} to {left} nodes for {job.id}"
        return reason("resizing", message, for_job=job.id)
    if room.why == "reclaim":
        message = f"ran on accelerators of queue {job.queue!r}, which wants them back for {job.id}"
        return reason("quota_reclaimed", message, for_job=job.id, queue=job.queue)
    if room.why == "turn":
        return reason("turn_over", f"its turn in queue {other.queue!r} is over; {job.id} is next", for_job=job.id)
    return reason("preempted", f"{job.id} goes first", for_job=job.id)
