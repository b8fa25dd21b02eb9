"""Run times of finished jobs, by user and request: everything that is known in advance about run times.

Run times are stored as hazards: of the jobs that reached an age, the share that ended before twice that age. A group
with few jobs also uses the wider group around it. From wide to narrow: all jobs, the user's jobs, the user's jobs of
that size, and those of that name. Old jobs decay, so that a user's change of habits shows soon. The tables follow from
the ends of jobs alone.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from itertools import pairwise
from math import log, log2
from typing import Final

from muster.core.spec import JobSpec

BINS: Final = 24  # age bins: under 2 s, under 4 s, ... under 2**24 s, which is 194 days
EDGES: Final = (0.0, *(float(2 ** (i + 1)) for i in range(BINS)))
# The mean age at which a job ends in each bin, if its logarithm is spread evenly there.
MEANS: Final = tuple((high - low) / log(high / low) for low, high in pairwise((1.0, *EDGES[1:])))
PRIOR: Final = 0.5  # without data: half of all jobs end before they double their age
BELIEF: Final = 2.0  # how many jobs the wider group counts as, next to the group's own
FADE: Final = 0.9  # factor by which each new job of a group reduces the weight of the older ones
REFRESH: Final = 1.125  # growth of `ends` after which `common` is computed again; answers are cached until then
KNOWN: Final = 32  # number of ends from which on the history is used
GROUPS: Final = 50_000  # maximum in memory; the groups that had no end for the longest time are dropped first

Group = tuple[str, ...]
CacheKey = tuple[tuple[Group, ...], int, float]


def age_bin(age: float) -> int:
    return 0 if age < 2.0 else min(int(log2(age)), BINS - 1)


@dataclass(slots=True)
class Table:
    ended: list[float] = field(default_factory=lambda: [0.0] * BINS)
    passed: list[float] = field(default_factory=lambda: [0.0] * BINS)

    def add(self, last: int, fade: float) -> None:
        """Adds a job that ended in the bin `last` and passed the bins before it."""
        ended, passed = self.ended, self.passed
        for i in range(last + 1):
            ended[i] *= fade
            passed[i] = passed[i] * fade + 1.0
        passed[last] -= 1.0
        ended[last] += 1.0


@dataclass(slots=True)
class History:
    everyone: Table = field(default_factory=Table)
    groups: dict[Group, Table] = field(default_factory=dict)
    ends: int = 0
    epoch: int = 0  # increases when the expectations for all jobs change
    common: list[float] = field(default_factory=lambda: [PRIOR] * BINS)  # hazards of all jobs at the last refresh
    _next: int = 8  # the number of ends at which the next refresh is due
    _new: list[tuple[tuple[Group, ...], int]] = field(default_factory=list)  # ends that are not in the tables yet
    _cached: dict[Group, dict[CacheKey, float]] = field(default_factory=dict, compare=False, repr=False)
    # First group → groups → the hazards of all bins. Dropped with what is cached.
    _hazards: dict[Group, dict[tuple[Group, ...], list[float]]] = field(default_factory=dict, compare=False, repr=False)

    @property
    def known(self) -> bool:
        """Whether enough jobs have finished to expect anything."""
        return self.ends >= KNOWN

    def observe(self, groups: tuple[Group, ...], seconds: float) -> None:
        """Adds a job that ended after it had run this long. The tables are updated at the next query."""
        self._new.append((groups, age_bin(seconds)))
        self.ends += 1
        self._cached.pop(groups[0], None)
        self._hazards.pop(groups[0], None)
        if self.ends >= self._next or self.ends == KNOWN:
            self._refresh()

    def _catch_up(self) -> None:
        for groups, last in self._new:
            self.everyone.add(last, 1.0)
            for group in groups:
                found = self.groups.pop(group, None) or Table()
                found.add(last, FADE)
                self.groups[group] = found  # moved to the end: the newest groups are dropped last
        self._new.clear()
        while len(self.groups) > GROUPS:
            del self.groups[next(iter(self.groups))]

    def _refresh(self) -> None:
        self._catch_up()
        table = self.everyone
        self.common = [(PRIOR + e) / (1.0 + e + p) for e, p in zip(table.ended, table.passed, strict=True)]
        self.epoch += 1
        self._next = int(self.ends * REFRESH) + 1
        self._cached.clear()
        self._hazards.clear()

    def hazards(self, groups: tuple[Group, ...], first: int = 0) -> list[float]:
        """For each age bin from `first` on: the share of jobs that end before they double their age."""
        if self._new:
            self._catch_up()
        known = self._hazards.setdefault(groups[0], {}) if groups else {}
        found = known.get(groups)
        if found is None:
            found = self.common[:]
            for group in groups:
                table = self.groups.get(group)
                if table is not None:
                    both = zip(found, table.ended, table.passed, strict=True)
                    found = [(BELIEF * h + ended) / (BELIEF + ended + passed) for h, ended, passed in both]
            found[-1] = 1.0
            known[groups] = found
        return found[first:]

    def value(self, groups: tuple[Group, ...], first: int, restart_cost: float = 0.0) -> float:
        """The best rate of ends per second from running such a job, once its age is in the bin `first`.

        This is the Gittins index: over all times to run the job before deciding again, the best ratio of the
        probability that it ends to the expected time. `restart_cost`: seconds that its restart costs first.
        """
        known = self._cached.setdefault(groups[0], {})
        asked = (groups, first, restart_cost)
        found = known.get(asked)
        if found is None:
            found = known[asked] = self._value(groups, first, restart_cost)
        return found

    def _value(self, groups: tuple[Group, ...], first: int, restart_cost: float) -> float:
        age = EDGES[first] if first else 0.0
        alive, won, spent, best = 1.0, 0.0, restart_cost, 0.0
        for i, hazard in enumerate(self.hazards(groups, first), first):
            ends = alive * hazard
            alive -= ends
            won += ends
            spent += ends * (MEANS[i] - age)
            rate = won / (spent + alive * (EDGES[i + 1] - age))
            if rate > best:
                best = rate
        return best

    def quantile(self, groups: tuple[Group, ...], share: float, age: float = 0.0) -> float:
        """The total run time in seconds that a job of this age does not exceed with probability `share`."""
        known = self._cached.setdefault(groups[0], {})
        asked = (groups, -1, share) if not age else None
        found = known.get(asked) if asked else None
        if found is None:
            found = self._quantile(groups, share, age)
            if asked:
                known[asked] = found
        return found

    def _quantile(self, groups: tuple[Group, ...], share: float, age: float) -> float:
        first = age_bin(age)
        alive, goal = 1.0, 1.0 - share
        for i, hazard in enumerate(self.hazards(groups, first), first):
            low, high = max(EDGES[i], age, 1.0), EDGES[i + 1]
            left = alive * (1.0 - hazard)
            if left <= goal:
                return float(low * (high / low) ** min(1.0, (alive - goal) / max(alive - left, 1e-12)))
            alive = left
        return EDGES[-1]


def groups_of(user: str, spec: JobSpec) -> tuple[Group, ...]:
    """From wide to narrow. Numbers at the end of a name, as in sweeps, are ignored."""
    return _groups(user, spec.project, spec.kind, spec.num_nodes, spec.resources.accelerators, spec.name)


# A job's groups are asked for several times in each of its phases, and users submit many jobs that are alike.
@lru_cache(maxsize=GROUPS)
def _groups(user: str, project: str, kind: str, nodes: int, accelerators: int, name: str) -> tuple[Group, ...]:
    size, who = f"{kind} {nodes}x{accelerators}", (project, user)
    return (who, (*who, size), (*who, size, name.rstrip(_NUMBERS)))


_NUMBERS: Final = "-0123456789"
