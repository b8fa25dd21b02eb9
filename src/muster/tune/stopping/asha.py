"""Asynchronous successive halving (Li et al., 2020): the best 1/eta of each rung go on, the others are paused.

Nobody waits for anybody: a trial that passes a rung is judged among those that have passed it so far. One that is not
among the best saves and leaves, and goes on from its checkpoint if it is among the best of more trials later.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from muster.core.entities.study import Trial
from muster.tune.plugin import Option
from muster.tune.spec import StudySpec
from muster.tune.stopping.base import Promotion, Verdict
from muster.tune.stopping.levels import BY, ETA, MAX, MIN, PAUSE, by_of, levels_of, pauses_of
from muster.tune.stopping.rungs import Rungs
from muster.tune.view import StudyView


class Asha:
    NAME: ClassVar[str] = "asha"
    DESCRIPTION: ClassVar[str] = "pauses trials that are not among the best at a rung, and continues them when they are"
    OPTIONS: ClassVar[tuple[Option, ...]] = (BY, MIN, MAX, ETA, PAUSE)
    ANY_ORDER: ClassVar[bool] = False

    def __init__(self, spec: StudySpec, options: Mapping[str, Any]) -> None:
        self.by = by_of(options)
        self._levels = levels_of(options)
        self._rungs = Rungs(spec, options["eta"], self.next_level, pauses_of(spec, options))

    def next_level(self, trial: Trial) -> float | None:
        return None if trial.origin == "confirm" else self._levels.next(trial)

    def verdict(self, view: StudyView, trial: Trial) -> Verdict:
        return self._rungs.verdict(view, trial)

    def promote(self, view: StudyView) -> Promotion | None:
        return self._rungs.promote(view)

    def bracket(self, view: StudyView, number: int) -> int:
        return 0

    def may_ask(self, view: StudyView) -> bool:
        return True

    def rung_of(self, trial: Trial) -> int:
        return len(trial.rungs)
