"""Backfill reservations: when and where the first jobs that don't fit will start, so that backfill can't delay them."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from heapq import merge
from itertools import groupby, islice
from math import inf

from muster.core.job import Job, Seat
from muster.core.resources import WHOLE, Resources
from muster.core.rules import Rules
from muster.sched.board import Board
from muster.sched.capacity.slot import mask_of
from muster.sched.elastic import most_that_fit
from muster.sched.order import remaining
from muster.sched.place import GangRequest
from muster.sched.pool_access import OVERRUN
from muster.sched.running_gangs import Running

LATEST = 5_000  # maximum ends of running gangs that one reservation looks at


@dataclass(frozen=True, slots=True)
class Reservation:
    job: Job
    pool: str
    start: float
    end: float
    seats: tuple[Seat, ...]
    spare: dict[str, tuple[int, int]]  # node → milli-CPUs and bytes of memory that it leaves free there

    def delayed_by(self, seats: Iterable[Seat], ask: Resources, end: float) -> bool:
        """Whether a gang that holds these seats until `end` would delay the reservation."""
        if end <= self.start:
            return False
        mine = {seat.node: seat for seat in self.seats}
        for seat in seats:
            own = mine.get(seat.node)
            if own is not None:
                cpus, memory = self.spare[seat.node]
                if set(own.devices) & set(seat.devices) or ask.milli_cpus > cpus or ask.memory > memory:
                    return True
        return False

    def use_spare(self, seats: Iterable[Seat], ask: Resources) -> None:
        """Subtracts from `spare` what a gang takes that starts there without delaying the reservation."""
        for seat in seats:
            if seat.node in self.spare:
                cpus, memory = self.spare[seat.node]
                self.spare[seat.node] = (cpus - ask.milli_cpus, memory - ask.memory)


def ends_at(known: Running, rules: Rules, now: float) -> float:
    """The expected end of a running gang. One that has overrun is assumed to go on for a while; see `OVERRUN`."""
    job = known.job
    end = known.since + remaining(job, rules)
    if job.stop is not None:
        return min(job.stop.at + job.stop.grace, max(now, end))
    limit = known.since - job.ran + job.spec.max_duration if job.spec.max_duration is not None else inf
    return min(end if end > now else now + (now - known.since) * OVERRUN, max(limit, now))


def expected_duration(job: Job, rules: Rules, now: float) -> float:
    """Expected seconds that a queued job will hold its nodes."""
    return remaining(job, rules)


Tried = dict[tuple[GangRequest, str], tuple[float, float]]  # gang and pool → seconds that it lasts, first time it fits


def reserve(
    board: Board,
    rules: Rules,
    job: Job,
    gang: GangRequest,
    earlier: list[Reservation],
    now: float,
    tried: Tried | None = None,
) -> Reservation | None:
    """A reservation at the first time at which the gang fits, if gangs end as expected and `earlier` ones are kept.

    `tried` saves work among reservations between which nothing started: later ones only leave less room.
    """
    lasts = expected_duration(job, rules, now)
    best: Reservation | None = None
    tried = {} if tried is None else tried
    for pool in gang.pools:
        there = [r for r in earlier if r.pool == pool]
        found = _in_pool(board, rules, job, gang, pool, lasts, there, now, tried)
        if found is not None and (best is None or found.start < best.start):
            best = found
    return best


def fits_empty(board: Board, gang: GangRequest) -> bool:
    """Whether the gang fits once all gangs that run in its one pool have ended, so that it can have a reservation."""
    (pool,) = gang.pools
    line, free = board.gangs.ending[pool], board.free
    if len(line) > LATEST:
        return False
    mark = free.mark()
    for _, _, name in line:
        known = board.gangs.running[name]
        free.give(known.seats, known.job.ask)
    seats = most_that_fit(board, gang, gang.nodes)
    free.undo(mark)
    return seats is not None


def _in_pool(
    board: Board,
    rules: Rules,
    job: Job,
    gang: GangRequest,
    pool: str,
    lasts: float,
    earlier: list[Reservation],
    now: float,
    tried: Tried,
) -> Reservation | None:
    free, there = board.free, gang.within(pool, gang.nodes)
    before = tried.get((gang, pool))
    not_before = before[1] if before is not None and before[0] <= lasts else now
    others = sorted((reservation.end, 0, None) for reservation in earlier)
    mark = free.mark()
    try:
        times = merge(_ends(board, rules, pool, now), others, key=lambda end: end[:2])
        for time, leaving in _together(times, now):
            for known in leaving:
                free.give(known.seats, known.job.ask)
            if time < not_before or not free.could(there):
                continue
            there_then = [r for r in earlier if r.start < time + lasts and r.end > time]
            if not _room_beside(board, there, there_then):
                continue
            seats = undelayed_seats(board, there, there_then, there.nodes)
            if seats is not None:
                if not board.free.pool_indexes[pool].spares:  # which nodes are spares depends on what is taken
                    tried[gang, pool] = lasts, time
                slots = {seat.node: free.slots[seat.node] for seat in seats}
                spare = {
                    name: (slot.cpu - gang.ask.milli_cpus, slot.memory - gang.ask.memory)
                    for name, slot in slots.items()
                }
                return Reservation(job, pool, time, time + lasts, seats, spare)
    finally:
        free.undo(mark)
    return None


def _room_beside(board: Board, gang: GangRequest, others: list[Reservation]) -> bool:
    """A quick check: whether enough nodes have enough accelerators beside the reservations."""
    if not others or not gang.ask.accelerators or gang.ask.share < WHOLE:
        return True
    needs = dict(board.free.pool_indexes[gang.pools[0]].wanted(gang.ask))
    held = dict[str, int]()
    for other in others:
        for seat in other.seats:
            held[seat.node] = held.get(seat.node, 0) | mask_of(seat.devices)
    enough, slots = board.free.fitting(gang.ask, gang.pools[0]) - gang.nodes, board.free.slots
    for name, mask in held.items():
        slot = slots.get(name)
        need = needs.get(slot.cell.group) if slot is not None else None
        if slot is not None and need is not None and (slot.mask & ~mask).bit_count() < need <= slot.bucket:
            enough -= 1
    return enough >= 0


def _ends(board: Board, rules: Rules, pool: str, now: float) -> Iterator[tuple[float, int, Running | None]]:
    """The pool's running gangs in the order of their expected ends, including gangs that have overrun."""
    line = board.gangs.ending[pool]
    # Gangs that should have ended by now, or are leaving, get a new estimate; the others end as expected.
    late = {name for _, _, name in islice(line, bisect_left(line, (now, 10**18)))}
    late |= board.gangs.leaving[pool]
    running = board.gangs.running
    odd = sorted((ends_at(running[name], rules, now), running[name].job.number, name) for name in late)
    steady = (entry for entry in line if entry[2] not in late)
    for end, number, name in islice(merge(odd, steady), LATEST):
        yield end, number, running[name]


def _together(ends: Iterable[tuple[float, int, Running | None]], now: float) -> Iterator[tuple[float, list[Running]]]:
    """`now`, then each later time at which gangs end, with these gangs."""
    yield now, []
    for time, group in groupby(ends, key=lambda end: max(end[0], now)):
        yield time, [known for _, _, known in group if known is not None]


def undelayed_seats(board: Board, gang: GangRequest, others: list[Reservation], fewest: int) -> tuple[Seat, ...] | None:
    """Seats for the gang, or for as much of it as an elastic one needs, that leave the other reservations intact."""
    mark = board.free.mark()
    for other in others:
        board.free.take([seat for seat in other.seats if _there(board, seat)], other.job.ask)
    seats = most_that_fit(board, gang, fewest)
    board.free.undo(mark)
    return seats


def _there(board: Board, seat: Seat) -> bool:
    """Whether the seat can be taken: no part can be taken from an accelerator that has not enough left."""
    slot = board.free.slots.get(seat.node)
    if slot is None or seat.share == WHOLE:
        return True
    return slot.parts.get(seat.devices[0], WHOLE if slot.mask >> seat.devices[0] & 1 else 0) >= seat.share
