"""Hyperband (Li et al., 2017), asynchronous: several brackets, each of which looks at its trials later than the last.

Halving that looks early drops trials that learn slowly. Each bracket halves as `asha` does, from a later rung on, and
new trials are shared out so that all brackets cost about the same; the last one stops no trial.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar

from muster.core.entities.study import Trial
from muster.core.units import InvalidValue
from muster.tune.plugin import Option
from muster.tune.spec import StudySpec
from muster.tune.stopping.base import Promotion, Verdict
from muster.tune.stopping.levels import BY, ETA, MAX, MIN, PAUSE, by_of, levels_of, pauses_of
from muster.tune.stopping.rungs import Rungs
from muster.tune.view import StudyView


class Hyperband:
    NAME: ClassVar[str] = "hyperband"
    DESCRIPTION: ClassVar[str] = "asha in several brackets, which begin to look at their trials at different levels"
    OPTIONS: ClassVar[tuple[Option, ...]] = (
        BY, MIN, MAX, ETA, PAUSE,
        Option("brackets", "integer", None, "how many brackets; all that `max` allows, or 3", least=1, most=20),
    )  # fmt: skip
    ANY_ORDER: ClassVar[bool] = False

    def __init__(self, spec: StudySpec, options: Mapping[str, Any]) -> None:
        self.by = by_of(options)
        self._levels = levels_of(options)
        self._shares = shares(_count(options["brackets"], self._levels.count()), options["eta"])
        self._rungs = Rungs(spec, options["eta"], self.next_level, pauses_of(spec, options))

    def next_level(self, trial: Trial) -> float | None:
        return None if trial.origin == "confirm" else self._levels.next(trial, trial.bracket)

    def verdict(self, view: StudyView, trial: Trial) -> Verdict:
        return self._rungs.verdict(view, trial)

    def promote(self, view: StudyView) -> Promotion | None:
        return self._rungs.promote(view)

    def bracket(self, view: StudyView, number: int) -> int:
        """The one that is furthest behind its share."""
        self._rungs.tables.follow(view)
        counts = [len(self._rungs.tables.rows("member", bracket)) for bracket in range(len(self._shares))]
        return min(range(len(counts)), key=lambda bracket: ((counts[bracket] + 1) / self._shares[bracket], bracket))

    def may_ask(self, view: StudyView) -> bool:
        return True

    def rung_of(self, trial: Trial) -> int:
        return max(trial.bracket, self._levels.index(trial.rungs[-1].level) if trial.rungs else 0)


def shares(brackets: int, eta: float) -> list[int]:
    """How many trials each bracket begins with, the earliest first, so that all of them cost about the same: with
    eta = 3 and five brackets 81, 34, 15, 8 and 5."""
    return [math.ceil(brackets / (left + 1) * eta**left - 1e-9) for left in range(brackets - 1, -1, -1)]


def _count(given: int | None, levels: int | None) -> int:
    if levels is None:
        return given or 3
    if given is not None and given > levels + 1:
        raise InvalidValue(f"`max` has room for {levels + 1} brackets, and not for {given}.")
    return given or levels + 1
