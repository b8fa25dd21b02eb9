"""The running gangs of one queue in one pool, sorted by value (`Policy.value`).

Gangs of one band have the same value and share one tier. When the expectation for a band changes, only the tier moves,
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

Step = tuple[float, int, str]  # value, number, id


@dataclass(slots=True, eq=False)
class Tier:
    band: Hashable
    value: float  # of each gang; see `Policy.value`. inf for gangs that are never preempted
    number: int  # tie-break between tiers of the same value
    members: list[tuple[int, str]] = field(default_factory=list)  # numbers and ids, sorted


@dataclass(slots=True)
class ByValue:
    _tiers: dict[Hashable, Tier] = field(default_factory=dict)
    _order: list[tuple[float, int, Hashable]] = field(default_factory=list)
    _made: int = 0

    def add(self, band: Hashable, member: tuple[int, str]) -> Tier:
        """Adds a gang to the tier of its band and returns the tier. A new tier has value inf until it is moved."""
        tier = self._tiers.get(band)
        if tier is None:
            self._made += 1
            tier = self._tiers[band] = Tier(band, inf, self._made)
            self._order.append((inf, tier.number, band))
        insort(tier.members, member)
        return tier

    def remove(self, tier: Tier, member: tuple[int, str]) -> None:
        del tier.members[bisect_left(tier.members, member)]
        if not tier.members:
            self._take_off(tier)
            del self._tiers[tier.band]

    def move(self, tier: Tier, value: float) -> None:
        self._take_off(tier)
        tier.value = value
        insort(self._order, (value, tier.number, tier.band))  # no two have one number: bands are not compared

    @property
    def least(self) -> float:
        """The lowest value of any gang; inf when no gang may be preempted."""
        return self._order[0][0] if self._order else inf

    def __iter__(self) -> Iterator[Step]:
        """Lowest value first; gangs of the same value by job number."""
        for value, alike in groupby(self._order, key=lambda place: place[0]):
            tiers = [self._tiers[band] for _, _, band in alike]
            members = tiers[0].members if len(tiers) == 1 else merge(*[tier.members for tier in tiers])
            for number, name in members:
                yield value, number, name

    def _take_off(self, tier: Tier) -> None:
        del self._order[bisect_left(self._order, (tier.value, tier.number))]
