"""The gangs of one queue that run in a pool, by what they are worth.

Gangs of one band are worth the same and stand on one rung, so that a change of what is expected of them moves the rung
and none of them.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field
from heapq import merge
from itertools import groupby
from math import inf

NEVER = "never"  # the band of gangs that never give way

Step = tuple[float, int, str]  # worth, number, id


@dataclass(slots=True, eq=False)
class Rung:
    band: Hashable
    worth: float  # of each; see `Policy.worth`. inf for gangs that never give way
    number: int  # tells rungs apart that are worth the same
    members: list[tuple[int, str]] = field(default_factory=list)  # numbers and ids, sorted


@dataclass(slots=True)
class ByValue:
    _rungs: dict[Hashable, Rung] = field(default_factory=dict)
    _order: list[tuple[float, int, Hashable]] = field(default_factory=list)
    _made: int = 0

    def add(self, band: Hashable, member: tuple[int, str]) -> Rung:
        """The rung of the band; a new one stands on top until it is moved."""
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
        """What the least of them is worth; inf when nobody may give way."""
        return self._order[0][0] if self._order else inf

    def __iter__(self) -> Iterator[Step]:
        """The least worth first; those that are worth the same by number."""
        for worth, alike in groupby(self._order, key=lambda place: place[0]):
            rungs = [self._rungs[band] for _, _, band in alike]
            members = rungs[0].members if len(rungs) == 1 else merge(*[rung.members for rung in rungs])
            for number, name in members:
                yield worth, number, name

    def _take_off(self, rung: Rung) -> None:
        del self._order[bisect_left(self._order, (rung.worth, rung.number), key=_place)]


def _place(entry: tuple[float, int, Hashable]) -> tuple[float, int]:
    return entry[:2]
