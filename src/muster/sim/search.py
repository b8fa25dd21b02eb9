"""Which size, and which policy, would have met the targets: a search by replaying.

Where more is better as a rule (nodes; the quota of a queue, for targets of that queue alone) sizes are bisected, and
the neighbours of the answer are replayed to their ends. Everything else is enumerated. In several worlds a candidate
has to meet the targets in each of them. A replay ends as soon as its targets are certain, unless `to_end`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from muster.sim.answers import Answer, Ask
from muster.sim.bisect import least
from muster.sim.model import Setup
from muster.sim.pool import Pool
from muster.sim.spaces import Space
from muster.sim.targets import Target

OnTried = Callable[["Tried"], None]
GRID: Final = 17  # sizes at most that are tried of a space without an order


@dataclass(frozen=True, slots=True)
class Tried:
    """One candidate: a policy, and a size where sizes are searched."""

    policy: str
    size: int | None
    met: bool
    answers: tuple[Answer, ...]  # one for each world, up to the first that misses

    @property
    def values(self) -> tuple[float, ...]:
        """The worst value of each target over the worlds; none where a replay was not needed to its end."""
        if not all(answer.values for answer in self.answers):
            return ()
        return tuple(map(max, zip(*(answer.values for answer in self.answers), strict=True)))

    @property
    def is_whole(self) -> bool:
        return all(answer.summary is not None for answer in self.answers)

    @property
    def share(self) -> float:
        """Of the jobs that were replayed in the world that took least of them."""
        return min(answer.watched.share for answer in self.answers)

    @property
    def wall(self) -> float:
        return sum(answer.watched.wall for answer in self.answers)

    @property
    def money(self) -> float | None:
        """Mean over the worlds, in millionths of the currency; None without prices or where a replay was cut."""
        found = [answer.summary.money.total for answer in self.answers if answer.summary and answer.summary.money]
        return sum(found) / len(found) if found and len(found) == len(self.answers) else None


@dataclass(slots=True)
class Search:
    """`best` has one candidate for each policy that can meet the targets, cheapest first."""

    tried: list[Tried] = field(default_factory=list)
    best: list[Tried] = field(default_factory=list)
    monotone: bool = True  # as far as was tried

    def candidate(self, policy: str, size: int | None) -> Tried | None:
        return next((one for one in self.tried if (one.policy, one.size) == (policy, size)), None)

    def just_missing(self, one: Tried) -> Tried | None:
        """The candidate next below, where sizes were bisected and it misses."""
        below = None if one.size is None else self.candidate(one.policy, one.size - 1)
        return None if below is None or below.met else below


@dataclass(slots=True)
class Searcher:
    """What all candidates of a search share."""

    pool: Pool
    targets: tuple[Target, ...]
    worlds: int = 1
    to_end: bool = False
    on_tried: OnTried | None = None

    def search(self, policies: Sequence[Setup], space: Space | None) -> Search:
        found = Search()
        if space is None:
            self._try([(setup, None) for setup in policies], None, found)
            found.best = [one for one in found.tried if one.met]
        else:
            for setup in policies:
                best = self._sizes(setup, space, found)
                found.best += [best] if best is not None else []
        found.best.sort(key=_price)
        return found

    def _sizes(self, setup: Setup, space: Space, found: Search) -> Tried | None:
        if not space.ordered:
            step = max(1, -(-(space.high - space.low) // (GRID - 1)))
            sizes = sorted({*range(space.low, space.high + 1, step), space.start, space.high})
            tried = self._try([(setup, size) for size in sizes], space, found)
            return min((one for one in tried if one.met), key=_price, default=None)

        def evaluate(sizes: Sequence[int]) -> list[bool]:
            return [one.met for one in self._try([(setup, size) for size in sizes], space, found)]

        width = max(1, self.pool.processes // max(self.worlds, 1))
        answer = least(evaluate, space.start, space.low, space.high, width)
        found.monotone = found.monotone and answer.is_monotone
        if answer.least is None:
            return None
        return self._exact(setup, answer.least, space, found)

    def _exact(self, setup: Setup, size: int, space: Space, found: Search) -> Tried | None:
        """The answer and what just misses, with their figures: replayed to the end where that was not needed."""
        near = [found.candidate(setup.name, one) for one in (size, size - 1)]
        again = [one for one in near if one is not None and not one.is_whole]
        for one in again:
            found.tried.remove(one)
        self._try([(setup, one.size) for one in again], space, found, to_end=True)
        return found.candidate(setup.name, size)

    def _try(
        self, wanted: Sequence[tuple[Setup, int | None]], space: Space | None, found: Search, to_end: bool = False
    ) -> list[Tried]:
        """Replays each candidate in each world; not in further worlds where one has missed."""
        missed: set[int] = set()
        answers: list[list[Answer]] = [[] for _ in wanted]
        order: list[int] = []

        def asks() -> Iterator[Ask]:
            for world in range(self.worlds):
                for place, (setup, size) in enumerate(wanted):
                    if place not in missed:
                        order.append(place)
                        changed = setup if space is None or size is None else space.change(setup, size)
                        label = setup.name if space is None else f"{setup.name}, {size} {space.unit}"
                        whole = to_end or self.to_end
                        yield Ask(changed, world, self.targets, to_end=whole, label=label)

        for number, (_, answer) in enumerate(self.pool.run(asks())):
            place = order[number]
            if place not in missed:
                answers[place].append(answer)
            if not answer.watched.met:
                missed.add(place)
        made = []
        for place, (setup, size) in enumerate(wanted):
            one = Tried(setup.name, size, place not in missed, tuple(answers[place]))
            found.tried.append(one)
            made.append(one)
            if self.on_tried is not None:
                self.on_tried(one)
        return made


def _price(one: Tried) -> tuple[float, float, float]:
    """Money where there are prices, then the size, then how soon jobs are done."""
    ends = [answer.summary.completion.mean or 0.0 for answer in one.answers if answer.summary]
    return one.money or 0.0, one.size or 0, sum(ends) / len(ends) if ends else 0.0
