"""What will be free in a pool, and when, if its running gangs end as expected.

Reservations between which nothing starts share it. Which nodes have enough accelerators at a time is counted on bit
masks; only at times at which the count is enough, the ends are carried out on the index of free capacity.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from heapq import merge
from itertools import groupby, islice
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


class Outlook:
    """One pool from now on. Between `go` and `back`, the board's free capacity is that of a later time."""

    def __init__(self, board: Board, rules: Rules, pool: str, now: float) -> None:
        self.pool, self._board = pool, board
        ends = [
            (time, [known for _, _, known in some])
            for time, some in groupby(_ends(board, rules, pool, now), key=lambda end: max(end[0], now))
        ]
        self.times = [now, *[time for time, _ in ends]]
        # Gang → how long it was to last, and the first time found for it: nothing that lasts as long fits earlier.
        self.found: dict[GangRequest, tuple[float, float]] = {}
        self._leaving: list[list[Running]] = [[], *[gangs for _, gangs in ends]]
        self._at, self._marks = 0, [board.free.mark()]
        self._masks: dict[str, tuple[list[int], list[int]]] | None = None  # node → from which end on, what is free then
        self._counts: dict[tuple[str, int, int], list[int]] = {}

    def fitting(self, ask: Resources) -> list[int]:
        """At each of `times`: at most how many nodes have enough accelerators. Empty for an ask of no whole ones."""
        if not ask.accelerators or ask.share < WHOLE:
            return []
        key = (ask.accelerator, ask.accelerator_memory, ask.accelerators)
        found = self._counts.get(key)
        if found is None:
            if self._masks is None:
                self._masks = self._look()
            needs, slots = self._needs(ask), self._board.free.slots
            more = [0] * len(self.times)
            for name, (_, masks) in self._masks.items():
                need = needs.get(slots[name].cell.group, -1)
                if need >= 0 and slots[name].healthy and masks[0].bit_count() < need:
                    index = next((i for i, mask in enumerate(masks) if mask.bit_count() >= need), None)
                    if index is not None:
                        more[self._masks[name][0][index]] += 1
            self.back()
            total = self._board.free.fitting(ask, self.pool)
            found = self._counts[key] = []
            for count in more:
                total += count
                found.append(total)
        return found

    def may_fit(self, gang: GangRequest, index: int, held: Held) -> bool:
        """A quick check: whether enough nodes have enough accelerators beside what others hold."""
        counts = self.fitting(gang.ask)
        if not counts:
            return True
        enough = counts[index] - gang.nodes
        if enough < 0 or not held.whole:
            return enough >= 0
        needs, slots, masks = self._needs(gang.ask), self._board.free.slots, self._masks or {}
        for name, (mask, _, _) in held.whole.items():
            slot = slots.get(name)
            need = needs.get(slot.cell.group, -1) if slot is not None and slot.healthy else -1
            if slot is None or need < 0:
                continue
            then = slot.mask
            if name in masks:
                since, values = masks[name]
                then = values[bisect_right(since, index) - 1]
            if then.bit_count() >= need > (then & ~mask).bit_count():
                enough -= 1
                if enough < 0:
                    return False
        return True

    def moments(self, after: float, others: list[float]) -> Iterator[tuple[float, int]]:
        """The times from `after` on at which something becomes free, at ends or at `others`, with the place of the last
        ends in `times`."""
        times = self.times
        i, j = bisect_left(times, after), bisect_left(others, after)
        while i < len(times) or j < len(others):
            if j == len(others) or (i < len(times) and times[i] <= others[j]):
                time = times[i]
                i += 1
            else:
                time = others[j]
            while j < len(others) and others[j] == time:
                j += 1
            yield time, i - 1

    def go(self, index: int) -> None:
        """To the time of this place in `times`: what has ended by then is free."""
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

    def _look(self) -> dict[str, tuple[list[int], list[int]]]:
        found: dict[str, tuple[list[int], list[int]]] = {}
        self.back()
        slots = self._board.free.slots
        for index, gangs in enumerate(self._leaving):
            for known in gangs:
                for seat in known.seats:
                    if seat.node not in slots:
                        continue
                    since, masks = found.setdefault(seat.node, ([0], [slots[seat.node].mask]))
                    if since[-1] != index:
                        since.append(index)
                        masks.append(masks[-1])
                    masks[-1] |= mask_of(seat.devices)
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
