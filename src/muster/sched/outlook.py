"""What will be free in a pool, and when, if its running gangs end as expected.

Reservations between which nothing starts share it. Which nodes have enough accelerators at a time is counted on bit
masks; only at times at which the count is enough, the ends are carried out on the index of free capacity.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from heapq import merge
from itertools import accumulate, groupby, islice
from math import inf
from typing import Protocol

from muster.core.job import Job
from muster.core.resources import WHOLE, Resources
from muster.core.rules import Rules
from muster.core.seat import Seat
from muster.sched.board import Board
from muster.sched.capacity.slot import mask_of
from muster.sched.order import remaining
from muster.sched.place import GangRequest
from muster.sched.pool_access import OVERRUN
from muster.sched.running_gangs import Running

LATEST = 5_000  # maximum ends of running gangs that one reservation looks at


class Other(Protocol):
    """A job that will have seats."""

    @property
    def job(self) -> Job: ...

    @property
    def seats(self) -> tuple[Seat, ...]: ...


@dataclass(slots=True)
class Held:
    """What others will have at a time, summed up by node."""

    whole: dict[str, tuple[int, int, int]] = field(default_factory=dict)  # accelerators as a mask, milli-CPUs, memory
    parts: list[tuple[Seat, Resources]] = field(default_factory=list)  # seats on parts of accelerators

    @classmethod
    def by(cls, others: Sequence[Other]) -> Held:
        found = cls()
        whole = found.whole
        for other in others:
            ask = other.job.ask
            for seat in other.seats:
                if seat.share < WHOLE:
                    found.parts.append((seat, ask))
                    continue
                mask, cpus, memory = whole.get(seat.node, (0, 0, 0))
                whole[seat.node] = mask | mask_of(seat.devices), cpus + ask.milli_cpus, memory + ask.memory
        return found


@dataclass(slots=True)
class _Fitting:
    """How many nodes have enough accelerators for one kind of ask."""

    needs: dict[object, int]  # group of nodes → accelerators
    totals: list[int]  # at each of `Outlook.times` that has been looked at; it never falls


class Outlook:
    """One pool from now on. Between `go` and `back`, the board's free capacity is that of a later time.

    It looks no further ahead than it is asked to: of thousands of gangs the first few ends often are enough.
    """

    def __init__(self, board: Board, rules: Rules, pool: str, now: float) -> None:
        self.pool, self._board = pool, board
        # Gang → how long it was to last, and the first time found for it: nothing that lasts as long fits earlier.
        self.found: dict[GangRequest, tuple[float, float]] = {}
        self._ends = groupby(_ends(board, rules, pool, now), key=lambda end: max(end[0], now))
        self._times, self._leaving = [now], [list[Running]()]  # those that leave at each time; grow on demand
        self._at, self._marks = 0, [board.free.mark()]
        # For each time: what is free on the nodes that change then, as masks, and the time of their change before.
        # Dictionaries of numbers alone are none of the garbage collector's concern, and a list for each node is: with
        # thousands of nodes, one round in a hundred took five times as long.
        self._masks: list[dict[str, int]] = [{}]
        self._before: list[dict[str, int]] = [{}]
        self._last: dict[str, int] = {}  # node → the last time at which it changes
        self._looked = 0  # the last time whose ends are in `_masks`
        self._fitting: dict[tuple[str, int, int], _Fitting] = {}

    @property
    def now(self) -> float:
        return self._times[0]

    def time(self, index: int) -> float:
        return self._times[index]

    def first_fit(self, ask: Resources, nodes: int) -> int | None:
        """The place of the first time at which so many nodes have enough accelerators; None if that never is."""
        fitting = self._fitting_for(ask)
        if fitting is None:
            return 0
        while fitting.totals[-1] < nodes:
            if not self._look_further():
                return None
        return bisect_left(fitting.totals, nodes)

    def may_fit(self, gang: GangRequest, index: int, held: Held) -> bool:
        """A quick check: whether enough nodes have enough accelerators beside what others hold."""
        fitting = self._fitting_for(gang.ask)
        if fitting is None:
            return True
        while self._looked < index:
            self._look_further()
        enough = fitting.totals[index] - gang.nodes
        if enough < 0 or not held.whole:
            return enough >= 0
        needs, slots, last = fitting.needs, self._board.free.slots, self._last
        for name, (mask, _, _) in held.whole.items():
            slot = slots.get(name)
            need = needs.get(slot.cell.group, -1) if slot is not None and slot.healthy else -1
            if slot is None or need < 0:
                continue
            then = self._free_at(name, index) if name in last else slot.mask
            if then.bit_count() >= need > (then & ~mask).bit_count():
                enough -= 1
                if enough < 0:
                    return False
        return True

    def moments(self, after: float, others: list[float]) -> Iterator[tuple[float, int]]:
        """The times from `after` on at which something becomes free, at ends or at `others`, with the place of the last
        ends up to then."""
        times = self._times
        while times[-1] < after and self._next_end():
            pass
        i, j = bisect_left(times, after), bisect_left(others, after)
        while i < len(times) or self._next_end() or j < len(others):
            if j == len(others) or (i < len(times) and times[i] <= others[j]):
                time = times[i]
                i += 1
            else:
                time = others[j]
            while j < len(others) and others[j] == time:
                j += 1
            yield time, i - 1

    def go(self, index: int) -> None:
        """To the time of this place: what has ended by then is free."""
        free = self._board.free
        if index < self._at:
            free.undo(self._marks[index])
            del self._marks[index + 1 :]
            self._at = index
        while self._at < index:
            self._at += 1
            for known in self._leaving[self._at]:
                free.give(known.seats, known.job.ask)
            self._marks.append(free.mark())

    def back(self) -> None:
        """To now."""
        self.go(0)

    def _next_end(self) -> bool:
        """Adds the next time at which gangs end; False when there is none."""
        found = next(self._ends, None)
        if found is None:
            return False
        self._times.append(found[0])
        self._leaving.append([known for _, _, known in found[1]])
        return True

    def _look_further(self) -> bool:
        """Counts what is free after the next ends; False when there are none."""
        index = self._looked + 1
        if index == len(self._times) and not self._next_end():
            return False
        if self._looked < self._at:
            self.back()  # masks start from what is free now
        slots, last, counted = self._board.free.slots, self._last, list(self._fitting.values())
        first, masks, before = self._masks[0], dict[str, int](), dict[str, int]()
        more = [0] * len(counted)
        for known in self._leaving[index]:
            for seat in known.seats:
                name = seat.node
                slot = slots.get(name)
                if slot is None:
                    continue
                old = masks.get(name)
                if old is None:
                    since = last.get(name)
                    if since is None:
                        since, first[name] = 0, slot.mask
                    old = self._masks[since][name]
                    last[name], before[name] = index, since
                new = masks[name] = old | mask_of(seat.devices)
                for place, one in enumerate(counted):
                    if old.bit_count() < one.needs.get(slot.cell.group, -1) <= new.bit_count() and slot.healthy:
                        more[place] += 1
        self._masks.append(masks)
        self._before.append(before)
        for place, one in enumerate(counted):
            one.totals.append(one.totals[-1] + more[place])
        self._looked = index
        return True

    def _free_at(self, name: str, index: int) -> int:
        """What is free on a node that changes, as a mask."""
        at = self._last[name]
        while at > index:
            at = self._before[at][name]
        return self._masks[at][name]

    def _fitting_for(self, ask: Resources) -> _Fitting | None:
        """The count for such asks, up to `_looked`; None for an ask of no whole accelerators."""
        if not ask.accelerators or ask.share < WHOLE:
            return None
        key = (ask.accelerator, ask.accelerator_memory, ask.accelerators)
        found = self._fitting.get(key)
        if found is None:
            self.back()
            needs, slots = self._needs(ask), self._board.free.slots
            more = [0] * (self._looked + 1)
            more[0] = self._board.free.fitting(ask, self.pool)
            for index in range(1, self._looked + 1):
                before = self._before[index]
                for name, mask in self._masks[index].items():
                    need = needs.get(slots[name].cell.group, -1)
                    if need >= 0 and slots[name].healthy:
                        old = self._masks[before[name]][name]
                        more[index] += old.bit_count() < need <= mask.bit_count()
            found = self._fitting[key] = _Fitting(needs, list(accumulate(more)))
        return found

    def _needs(self, ask: Resources) -> dict[object, int]:
        pool_index = self._board.free.pool_indexes.get(self.pool)
        return dict(pool_index.wanted(ask)) if pool_index else {}


def ends_at(known: Running, rules: Rules, now: float) -> float:
    """The expected end of a running gang. One that has overrun is assumed to go on for a while; see `OVERRUN`."""
    job = known.job
    end = known.since + remaining(job, rules)
    if job.stop is not None:
        return min(job.stop.at + job.stop.grace, max(now, end))
    limit = known.since - job.ran + job.spec.max_duration if job.spec.max_duration is not None else inf
    return min(end if end > now else now + (now - known.since) * OVERRUN, max(limit, now))


def _ends(board: Board, rules: Rules, pool: str, now: float) -> Iterator[tuple[float, int, Running]]:
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
