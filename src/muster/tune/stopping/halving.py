"""Successive halving (Jamieson and Talwalkar, 2016): a cohort of trials pauses at each rung until all of it has passed.

Then the best 1/eta go on. What is decided depends on the values alone and not on who was first; the price is that
places are empty while the last of a cohort runs.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, ClassVar

from muster.core.entities.study import Trial
from muster.tune.plugin import Option
from muster.tune.spec import StudySpec
from muster.tune.stopping.base import Promotion, Verdict
from muster.tune.stopping.cohorts import is_full, newest_cohort
from muster.tune.stopping.levels import BY, ETA, MAX, MIN, by_of, levels_of
from muster.tune.stopping.rungs import DIVERGED, entries, last_chance, quota
from muster.tune.tables import Entry, Tables, rank
from muster.tune.view import StudyView


class Halving:
    NAME: ClassVar[str] = "halving"
    DESCRIPTION: ClassVar[str] = "pauses a cohort of trials at each rung until all have passed; then the best go on"
    OPTIONS: ClassVar[tuple[Option, ...]] = (
        BY, MIN, MAX, ETA,
        Option("cohort", "integer", None, "trials of a cohort; `trials` of the study, or eta^3", least=2),
    )  # fmt: skip
    ANY_ORDER: ClassVar[bool] = True

    def __init__(self, spec: StudySpec, options: Mapping[str, Any]) -> None:
        self.by = by_of(options)
        self._sign, self._eta = spec.objective.sign, options["eta"]
        self._size: int = options["cohort"] or spec.trials or round(self._eta**3)
        # One trial of a cohort is left after the last level.
        self._levels = replace(levels_of(options), most=_halvings(self._size, self._eta))
        self._tables = Tables(self._entries)

    def next_level(self, trial: Trial) -> float | None:
        return None if trial.origin == "confirm" else self._levels.next(trial)

    def verdict(self, view: StudyView, trial: Trial) -> Verdict:
        passed = trial.rungs[-1]
        if not math.isfinite(passed.values[0]):
            return DIVERGED
        return Verdict("pause", f"waits at {passed.level:g} for the others of its cohort")

    def promote(self, view: StudyView) -> Promotion | None:
        self._tables.follow(view)
        for cohort in sorted({bracket for _, bracket, _ in self._tables.keys("paused")}):
            if (found := self._next(view, cohort)) is not None:
                return found
        return last_chance(view, self._tables)

    def bracket(self, view: StudyView, number: int) -> int:
        """The cohort."""
        self._tables.follow(view)
        newest = newest_cohort(self._tables)
        return newest + is_full(self._tables, newest, self._size)

    def may_ask(self, view: StudyView) -> bool:
        self._tables.follow(view)
        newest = newest_cohort(self._tables)
        return not is_full(self._tables, newest, self._size) or self._is_over(view, newest)

    def rung_of(self, trial: Trial) -> int:
        return len(trial.rungs)

    def _next(self, view: StudyView, cohort: int) -> Promotion | None:
        """The best paused trial of the lowest rung that all of the cohort have passed who will."""
        if not (view.closed or is_full(self._tables, cohort, self._size)) or self._tables.rows("running", cohort, 0.0):
            return None
        for index in range(self._levels.most or 0):
            if (level := self._levels.level(index)) is None:
                return None
            table = self._tables.rows("passed", cohort, level)
            some = max(quota(len(table), self._eta), 1)
            paused = self._tables.rows("paused", cohort, level)
            if paused and rank(table, paused[0]) < some:
                place = rank(table, paused[0]) + 1
                return Promotion(paused[0][1], f"number {place} of {len(table)} at {level:g}, of which {some} go on")
            leaving = self._tables.rows("leaving", cohort, level)
            if self._tables.rows("running", cohort, level) or (leaving and rank(table, leaving[0]) < some):
                return None
        return None

    def _is_over(self, view: StudyView, cohort: int) -> bool:
        live = [*self._tables.keys("running"), *self._tables.keys("leaving")]
        return not any(bracket == cohort for _, bracket, _ in live) and self._next(view, cohort) is None

    def _entries(self, trial: Trial) -> Iterator[Entry]:
        return entries(trial, self._sign, self.next_level)


def _halvings(size: int, eta: float) -> int:
    """How often the best 1/eta of so many are taken until one is left."""
    count = 0
    while size > 1:
        size, count = max(quota(size, eta), 1), count + 1
    return count
