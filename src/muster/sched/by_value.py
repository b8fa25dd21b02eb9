"""The running gangs of one queue in one pool, sorted by value (`Policy.worth`).

Gangs of one band have the same value and share one rung. When the expectation for a band changes, only the rung moves,
not each gang.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field
from heapq import merge
from itertools import groupby
from math import inf

NEVER = "never"  # the band of gangs that are never preempted

Step = tuple[float, int, str]  # worth, number, id


@dataclass(slots=True, eq=False)
class Rung:
    band: Hashable
    worth: float  # of each gang; see `Policy.worth`. inf for gangs that are never preempted
    number: int  # tie-break between rungs of the same value
    members: list[tuple[int, str]] = field(default_factory=list)  # numbers and ids, sorted


@dataclass(slots=True)
class ByValue:
    _rungs: dict[Hashable, Rung] = field(default_factory=dict)
    _order: list[tuple[float, int, Hashable]] = field(default_factory=list)
    _made: int = 0

    def add(self, band: Hashable, member: tuple[int, str]) -> Rung:
        """Adds a gang to the rung of its band and returns the rung. A new rung has value inf until it is moved."""
        rung = self._rungs.get(band)
        if rung is None:
            self._made += 1
            rung = self._rungs[band] = Rung(band, inf, self._made)
            self._order.append((inf, rung.number, band))
        insort(rung.members, member)
        return rung

    def remove(self, rung: Rung, member: tuple[int, str]) -> None:
        del rung.members[bisect_left(rung.members, member)]
        if not rung.members:
            self._take_off(rung)
            del self._rungs[rung.band]

    def move(self, rung: Rung, worth: float) -> None:
        self._take_off(rung)
        rung.worth = worth
        insort(self._order, (worth, rung.number, rung.band), key=_place)

    @property
    def least(self) -> float:
        """The lowest value of any gang; inf when no gang may be preempted."""
        return self._order[0][0] if self._order else inf

    def __iter__(self) -> Iterator[Step]:
        """Lowest value first; gangs of the same value by job number."""
        for worth, alike in groupby(self._order, key=lambda place: place[0]):
            rungs = [self._rungs[band] for _, _, band in alike]
            members = rungs[0].members if len(rungs) == 1 else merge(*[rung.members for rung in rungs])
            for number, name in members:
                yield worth, number, name

    def _take_off(self, rung: Rung) -> None:
        del self._order[bisect_left(self._order, (rung.worth, rung.number), key=_place)]


def _place(entry: tuple[float, int, Hashable]) -> tuple[float, int]:
    return entry[:2]
