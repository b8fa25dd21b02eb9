"""Backfill reservations: when and where the first jobs that don't fit will start, so that backfill can't delay them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from muster.core.job import Job, Seat
from muster.core.resources import WHOLE, Resources
from muster.core.rules import Rules
from muster.sched.board import Board
from muster.sched.elastic import most_that_fit
from muster.sched.order import remaining
from muster.sched.outlook import LATEST, Held, Outlook
from muster.sched.place import GangRequest


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


def expected_duration(job: Job, rules: Rules, now: float) -> float:
    """Expected seconds that a queued job will hold its nodes."""
    return remaining(job, rules)


Outlooks = dict[str, Outlook]  # by pool, between two starts


def reserve(
    board: Board,
    rules: Rules,
    job: Job,
    gang: GangRequest,
    earlier: list[Reservation],
    now: float,
    outlooks: Outlooks | None = None,
) -> Reservation | None:
    """A reservation at the first time at which the gang fits, if gangs end as expected and `earlier` ones are kept.

    `outlooks` saves work among reservations between which nothing started: later ones only leave less room. The caller
    brings them back to now before it looks at what is free.
    """
    lasts = expected_duration(job, rules, now)
    best: Reservation | None = None
    for pool in gang.pools:
        there = [r for r in earlier if r.pool == pool]
        known = {} if outlooks is None else outlooks
        for other in known.values():
            if other.pool != pool:
                other.back()  # one at a time
        outlook = known.get(pool)
        if outlook is None:
            outlook = known[pool] = Outlook(board, rules, pool, now)
        found = _in_pool(board, outlook, job, gang, lasts, there)
        if outlooks is None:
            outlook.back()
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
    board: Board, outlook: Outlook, job: Job, gang: GangRequest, lasts: float, earlier: list[Reservation]
) -> Reservation | None:
    pool, free = outlook.pool, board.free
    there = gang.within(pool, gang.nodes)
    before = outlook.found.get(gang)
    index = outlook.first_fit(gang.ask, gang.nodes)  # earlier, too few nodes have enough
    if index is None:
        return None
    first = max(before[1] if before is not None and before[0] <= lasts else outlook.now, outlook.time(index))
    for time, index in outlook.moments(first, sorted([one.end for one in earlier])):
        there_then = [r for r in earlier if r.start < time + lasts and r.end > time]
        held = Held.by(there_then)
        if not outlook.may_fit(there, index, held):
            continue
        outlook.go(index)
        seats = _seats_beside(board, there, held, there.nodes)
        if seats is not None:
            if not free.pool_indexes[pool].spares:  # which nodes are spares depends on what is taken
                outlook.found[gang] = lasts, time
            slots = {seat.node: free.slots[seat.node] for seat in seats}
            spare = {
                name: (slot.cpu - gang.ask.milli_cpus, slot.memory - gang.ask.memory) for name, slot in slots.items()
            }
            return Reservation(job, pool, time, time + lasts, seats, spare)
    return None


def undelayed_seats(board: Board, gang: GangRequest, others: list[Reservation], fewest: int) -> tuple[Seat, ...] | None:
    """Seats for the gang, or for as much of it as an elastic one needs, that leave the other reservations intact."""
    return _seats_beside(board, gang, Held.by(others), fewest)


def _seats_beside(board: Board, gang: GangRequest, held: Held, fewest: int) -> tuple[Seat, ...] | None:
    free = board.free
    mark = free.mark()
    for name, (mask, cpus, memory) in held.whole.items():
        free.hold(name, mask, cpus, memory)
    for seat, ask in held.parts:
        if _there(board, seat):
            free.take((seat,), ask)
    seats = most_that_fit(board, gang, fewest)
    free.undo(mark)
    return seats


def _there(board: Board, seat: Seat) -> bool:
    """Whether the part can be taken: the accelerator has enough left."""
    slot, device = board.free.slots.get(seat.node), seat.devices[0]
    return slot is None or slot.parts.get(device, WHOLE if slot.mask >> device & 1 else 0) >= seat.share
