"""The levels of rules that look at a trial ever more seldom: each is `eta` times the one before."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from muster.core.entities.study import Trial
from muster.core.units import InvalidValue
from muster.tune.plugin import Option
from muster.tune.spec import By, StudySpec

BY: Final = Option("by", "choice", "report", "what levels count", choices=("report", "step"))
MIN: Final = Option("min", "integer", None, "the first level; 1 report, or max / eta^4 steps", least=1)
MAX: Final = Option("max", "integer", None, "the level at which a program ends", least=2)
ETA: Final = Option("eta", "number", 3.0, "one of so many goes on", least=2, most=100)
PAUSE: Final = Option(
    "pause", "flag", None, "no: trials are stopped instead; without it, yes for jobs and no for programs outside"
)
_SLACK: Final = 1e-9


@dataclass(frozen=True, slots=True)
class Levels:
    """`end`: none is so near to it that less than a factor `eta` is left; None: they have no end."""

    first: float
    eta: float
    end: float | None = None
    most: int | None = None  # how many there are

    def level(self, index: int) -> float | None:
        """The level of this index; None if there are fewer."""
        level = float(math.ceil(self.first * self.eta**index - _SLACK))
        if self.end is not None and level * self.eta > self.end + _SLACK:
            return None
        return level if self.most is None or index < self.most else None

    def count(self) -> int | None:
        """How many there are; None if they have no end."""
        return None if self.end is None and self.most is None else self.index(math.inf)

    def index(self, reached: float) -> int:
        """How many levels are not above this one."""
        index = 0
        while (level := self.level(index)) is not None and level <= reached:
            index += 1
        return index

    def next(self, trial: Trial, below: int = 0) -> float | None:
        """The first level that the trial has not passed, of those from index `below` on."""
        return self.level(max(below, self.index(trial.rungs[-1].level))) if trial.rungs else self.level(below)


def levels_of(options: Mapping[str, Any]) -> Levels:
    """Raises InvalidValue for options that contradict each other."""
    first, end, eta = options["min"], options["max"], options["eta"]
    if first is None and options["by"] == "step":
        if end is None:
            raise InvalidValue("Give `max`, the step at which the program ends, or `min`, the first step to look at.")
        first = max(1, math.ceil(end / eta**4))
    first = 1 if first is None else first
    if end is not None and first * eta > end:
        raise InvalidValue(f"`max` is {end}: give at least `min` times `eta`, which is {first * eta:g}.")
    return Levels(first, eta, end)


def pauses_of(spec: StudySpec, options: Mapping[str, Any]) -> bool:
    """A program that asks for trials is rarely made to be given one again."""
    pause: bool | None = options["pause"]
    return spec.job is not None if pause is None else pause


def by_of(options: Mapping[str, Any]) -> By:
    by: By = options["by"]
    return by


@dataclass(frozen=True, slots=True)
class Steady:
    """Levels from `first` on that are `every` apart; None: each about a quarter above the one before."""

    first: float
    every: float | None

    def next(self, trial: Trial, start: float = 0.0) -> float:
        """The first level that the trial has not passed. `start`: where it began."""
        last = trial.rungs[-1].level if trial.rungs else start
        if last < self.first:
            return self.first
        if self.every is None:
            return float(max(last + 1, math.ceil(last * 1.25)))
        return self.first + (math.floor((last - self.first) / self.every + _SLACK) + 1) * self.every
