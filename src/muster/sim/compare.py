"""A comparison of policies: one replay of each, or one in each of several worlds until it is decided."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from math import inf
from typing import Any, Final

from muster.sim.answers import Ask
from muster.sim.model import Result, Setup
from muster.sim.pool import Pool
from muster.sim.sequential import Comparison
from muster.sim.summary import Summary

OnWorld = Callable[["Compared"], None]
FIGURE: Final = "mean completion"  # what decides


@dataclass(slots=True)
class Compared:
    """`results` are of the first world; `worlds` has the summaries of each, in the order of the policies."""

    planned: int
    results: list[Result] = field(default_factory=list)
    worlds: list[list[Summary]] = field(default_factory=list)
    test: Comparison | None = None  # None: there is one world, in which nothing varies that a test could be about

    @property
    def stopped(self) -> bool:
        return len(self.worlds) < self.planned

    @property
    def summaries(self) -> list[Summary]:
        """Means over the worlds, of each policy."""
        return [mean_of(ones) for ones in zip(*self.worlds, strict=True)]

    def ratios(self, place: int) -> list[float]:
        """Mean completion of this policy over that of the first, in each world in which both have one."""
        pairs = ((world[place].completion.mean, world[0].completion.mean) for world in self.worlds)
        return sorted(mine / first for mine, first in pairs if mine and first)


def compare(
    setups: Sequence[Setup], pool: Pool, planned: int = 1, to_end: bool = False, on_world: OnWorld | None = None
) -> Compared:
    """Replays the setups in up to `planned` worlds; stops when each is known to be better or worse than the first.

    Worlds count in their order, however long each took: otherwise fast worlds would be heard first.
    """
    found = Compared(planned, test=Comparison(len(setups) - 1) if planned > 1 else None)
    asks = (
        Ask(setup, world, whole=world == 0, label=f"{setup.name}, world {world + 1}" if planned > 1 else setup.name)
        for world in range(planned)
        for setup in setups
    )
    answers = pool.run(asks)
    try:
        for world in range(planned):
            summaries = list(_one_world(answers, len(setups), found.results))
            found.worlds.append(summaries)
            if found.test is not None:
                found.test.add(figures(summaries))
            if on_world is not None:
                on_world(found)
            if not to_end and found.test is not None and found.test.decided and world + 1 < planned:
                break
    finally:
        answers.close()
    return found


def _one_world(answers: Iterator[tuple[Ask, Any]], count: int, results: list[Result]) -> Iterator[Summary]:
    for _ in range(count):
        _, answer = next(answers)
        if answer.result is not None:
            results.append(answer.result)
        yield answer.summary


def figures(summaries: Sequence[Summary]) -> list[float]:
    """What decides a world: mean completion. A policy under which fewer jobs finish than under another has lost it."""
    most = max(one.jobs for one in summaries)
    means = (one.completion.mean if one.jobs == most else inf for one in summaries)
    return [0.0 if mean is None else mean for mean in means]


def mean_of(ones: Sequence[Any]) -> Any:
    """The mean of equal dataclasses: of their numbers, and of those inside. The first one's where it is no number."""
    first = ones[0]
    if len(ones) == 1:
        return first
    if is_dataclass(first) and not isinstance(first, type):
        changes = {one.name: mean_of([getattr(each, one.name) for each in ones]) for one in fields(first)}
        return replace(first, **changes)
    if isinstance(first, dict):
        keys = dict.fromkeys(key for one in ones for key in one)
        return {key: mean_of([one[key] for one in ones if key in one]) for key in keys}
    numbers = [one for one in ones if isinstance(one, (int, float))]
    if not numbers:
        return next((one for one in ones if one is not None), None)
    mean = sum(numbers) / len(numbers)
    return round(mean) if isinstance(first, int) else mean
