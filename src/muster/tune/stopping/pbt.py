"""Population-based training (Jaderberg et al., 2017): trials that fall behind go on from the state of better ones.

All members of a population train at the same time. At each interval, one that is in the worst part of it is replaced by
a trial that starts from the checkpoint of one of the best, with parameters that are a little different. Members are
compared at the same step: each by its last value up to the step that the trial has reached.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from operator import attrgetter
from typing import Any, ClassVar

import numpy as np

from muster.core.entities.study import Trial
from muster.core.units import InvalidValue
from muster.tune.mutate import mutated
from muster.tune.plugin import Option
from muster.tune.spec import StudySpec
from muster.tune.stopping.base import GO, Promotion, Verdict
from muster.tune.stopping.cohorts import is_full, newest_cohort
from muster.tune.stopping.levels import BY, Steady, by_of
from muster.tune.stopping.rungs import DEAD, DIVERGED, NOT_ASKED, loss_at
from muster.tune.tables import Entry, Tables
from muster.tune.view import StudyView


class Pbt:
    """The population of a trial is its `bracket`; when one is over, the next begins."""

    NAME: ClassVar[str] = "pbt"
    DESCRIPTION: ClassVar[str] = "replaces the worst trials of a population by changed copies of the best"
    OPTIONS: ClassVar[tuple[Option, ...]] = (
        BY,
        Option("population", "integer", None, "how many are compared; `parallel`, but at least 4", least=2),
        Option("interval", "integer", None, "the worst are replaced so often; 5 reports, or so many steps", least=1),
        Option("quantile", "number", 0.25, "the part that is replaced, and that is copied", least=0.01, most=0.5),
        Option("factor", "number", 1.2, "numbers are multiplied or divided by it", least=1.01, most=10),
        Option("resample", "number", 0.25, "how likely a parameter is drawn anew instead", least=0, most=1),
    )  # fmt: skip
    ANY_ORDER: ClassVar[bool] = False

    def __init__(self, spec: StudySpec, options: Mapping[str, Any]) -> None:
        if spec.job is None:
            raise InvalidValue("`pbt` copies checkpoints, and can't where another program runs the trials.")
        if options["interval"] is None and options["by"] == "step":
            raise InvalidValue("Give `interval`, the number of steps after which the worst are replaced.")
        self.by = by_of(options)
        interval = options["interval"] or 5
        self._levels = Steady(interval, interval)
        self._spec, self._sign, self._options = spec, spec.objective.sign, options
        size = max(spec.parallel, 4)
        self._size: int = options["population"] or (size if spec.trials is None else max(min(size, spec.trials), 2))
        self._tables = Tables(self._entries)

    def next_level(self, trial: Trial) -> float | None:
        if trial.origin == "confirm":
            return None
        start = trial.step if trial.origin == "exploit" and self.by == "step" else 0
        return self._levels.next(trial, start)

    def verdict(self, view: StudyView, trial: Trial) -> Verdict:
        self._tables.follow(view)
        step = trial.rungs[-1].step
        mine = (self._loss(trial, step), trial.number)
        others = [view.trials[number] for _, number in self._tables.rows("tail", trial.bracket)]
        ranked = sorted([mine, *((self._loss(one, step), one.number) for one in others if one.number != mine[1])])
        some = int(len(ranked) * self._options["quantile"] + 1e-9)
        if some and mine in ranked[-some:]:
            sources = [number for loss, number in ranked[:some] if loss < mine[0] and _can_start(view, number)]
            if sources:
                return self._exploit(view, trial, sources, ranked.index(mine) + 1, len(ranked))
        if not math.isfinite(mine[0]):
            return DIVERGED
        if self._size > self._spec.parallel:
            return Verdict("pause", "the others of its population have their turn")
        return GO

    def promote(self, view: StudyView) -> Promotion | None:
        """The one that has trained least, once all of its population have begun."""
        self._tables.follow(view)
        paused = [key for key in self._tables.keys("paused") if self._complete(view, key[1])]
        if not paused:
            return None
        first = min(paused, key=lambda key: (key[1], key[2]))
        return Promotion(self._tables.rows(*first)[0][1], "has trained least of its population")

    def bracket(self, view: StudyView, number: int) -> int:
        self._tables.follow(view)
        newest = newest_cohort(self._tables)
        return newest + is_full(self._tables, newest, self._size)

    def may_ask(self, view: StudyView) -> bool:
        self._tables.follow(view)
        newest = newest_cohort(self._tables)
        return not self._complete(view, newest) or not self._tables.rows("open", newest)

    def rung_of(self, trial: Trial) -> int:
        return 0

    def _complete(self, view: StudyView, population: int) -> bool:
        """Whether no other trial will begin in it."""
        return view.closed or is_full(self._tables, population, self._size)

    def _exploit(self, view: StudyView, trial: Trial, sources: list[int], place: int, count: int) -> Verdict:
        random = np.random.default_rng((view.seed, trial.number, int(trial.rungs[-1].level)))
        source = sources[int(random.integers(len(sources)))]
        chances = self._options["factor"], self._options["resample"]
        params = mutated(self._spec.space, view.trials[source].params, random, *chances)
        return Verdict("exploit", f"number {place} of {count} at step {trial.rungs[-1].step}", source, params)

    def _loss(self, trial: Trial, step: int) -> float:
        """At the last rung up to a step; at its first, if it began later."""
        index = bisect_right(trial.rungs, step, key=attrgetter("step"))
        return loss_at(trial.rungs[max(index - 1, 0)], self._sign)

    def _entries(self, trial: Trial) -> Iterator[Entry]:
        number, population = trial.number, trial.bracket
        if trial.origin not in NOT_ASKED and trial.outcome != "lost":
            yield ("member", population, 0.0), (0.0, number)
        if trial.origin == "confirm" or trial.outcome in DEAD or trial.outcome == "stopped":
            return
        if trial.rungs:
            yield ("tail", population, 0.0), (0.0, number)
        if trial.phase != "ended":
            yield ("open", population, 0.0), (0.0, number)
        if trial.phase == "paused" and not trial.held:
            yield ("paused", population, float(trial.step)), (0.0, number)


def _can_start(view: StudyView, number: int) -> bool:
    """Whether another trial can start from its checkpoint. One that is over has nothing left to train."""
    trial = view.trials[number]
    return trial.phase != "ended" and (view.checkpoints is None or number in view.checkpoints)
