"""The median rule of Vizier (Golovin et al., 2017): a trial that is worse than half of the others is stopped.

Its best value so far is compared with the others' means up to the same level. A trial that ended before the level
counts with the mean that it had: otherwise the few good ones that get far would be halved again and again.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from muster.core.entities.study import Trial
from muster.core.units import InvalidValue
from muster.tune.plugin import Option
from muster.tune.spec import StudySpec
from muster.tune.stopping.base import GO, Promotion, Verdict
from muster.tune.stopping.levels import BY, Steady, by_of
from muster.tune.stopping.rungs import DIVERGED
from muster.tune.tables import Entry, Tables, rank
from muster.tune.view import StudyView


class Median:
    NAME: ClassVar[str] = "median"
    DESCRIPTION: ClassVar[str] = "stops trials whose best value is worse than half of the others' means"
    OPTIONS: ClassVar[tuple[Option, ...]] = (
        BY,
        Option("min", "integer", None, "the first level; 3 reports, and to be given for steps", least=1),
        Option("every", "integer", None, "levels are so far apart; each a quarter above the one before", least=1),
        Option("trials", "integer", 5, "no trial is stopped before it can be compared with so many", least=1),
    )
    ANY_ORDER: ClassVar[bool] = False

    def __init__(self, spec: StudySpec, options: Mapping[str, Any]) -> None:
        if options["min"] is None and options["by"] == "step":
            raise InvalidValue("Give `min`, the first step at which trials are compared.")
        self.by = by_of(options)
        self._sign, self._trials = spec.objective.sign, options["trials"]
        self._levels = Steady(options["min"] or 3, options["every"])
        self._tables = Tables(self._entries)

    def next_level(self, trial: Trial) -> float | None:
        return None if trial.origin == "confirm" else self._levels.next(trial)

    def verdict(self, view: StudyView, trial: Trial) -> Verdict:
        if not math.isfinite(trial.rungs[-1].values[0]):
            return DIVERGED
        self._tables.follow(view)
        level, best = trial.rungs[-1].level, min(self._sign * one.values[0] for one in trial.rungs)
        table = self._tables.rows("mean", 0, level)
        ended = [self._tables.rows(*key) for key in self._tables.keys("ended") if key[2] < level]
        others = len(table) - 1 + sum(map(len, ended))
        better = rank(table, (best, -1)) + sum(rank(one, (best, -1)) for one in ended)
        if others < self._trials or 2 * better <= others:
            return GO
        return Verdict("stop", f"{better} of {others} others were better on average up to {level:g}")

    def promote(self, view: StudyView) -> Promotion | None:
        return None

    def bracket(self, view: StudyView, number: int) -> int:
        return 0

    def may_ask(self, view: StudyView) -> bool:
        return True

    def rung_of(self, trial: Trial) -> int:
        return 0

    def _entries(self, trial: Trial) -> Iterator[Entry]:
        if trial.origin == "confirm" or trial.outcome == "lost":
            return
        total = mean = 0.0
        for count, rung in enumerate(trial.rungs, start=1):
            total += self._sign * rung.values[0]
            mean = total / count if math.isfinite(total) else math.inf
            yield ("mean", 0, rung.level), (mean, trial.number)
        if trial.phase == "ended" and trial.rungs:
            yield ("ended", 0, trial.rungs[-1].level), (mean, trial.number)
