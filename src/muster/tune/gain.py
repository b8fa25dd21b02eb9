"""By how much another trial is expected to improve the first objective, by the model of the study.

It is what a searcher that asks this model could gain. A study ends when this is worth less than a trial costs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from operator import is_not
from typing import Final

import numpy as np

from muster.core.entities.study import Trial
from muster.tune.evidence import Evidence
from muster.tune.model.cube import Array
from muster.tune.model.gaussian import NotComputable, Watched
from muster.tune.model.improvement import log_improvement
from muster.tune.model.suggest import searched
from muster.tune.model.surrogate import Fitted, Surrogate, least
from muster.tune.spec import StudySpec
from muster.tune.view import StudyView

FEWEST: Final = 10  # trials with values
_SHAPES: Final = 12  # of the model, besides the most likely one
_SPREAD: Final = 0.3  # of the logarithms of a shape's numbers
_POINTS: Final = 100  # that the other shapes are asked about
_LOW, _HIGH = 0.1, 0.9  # parts of the shapes, by their probability, that expect less


@dataclass(frozen=True, slots=True)
class Gain:
    """In units of the first objective, and never negative. From `low` to `high`: what shapes of the model expect that
    fit the trials nearly as well."""

    expected: float
    low: float
    high: float


class GainModel:
    """Made for one study; it keeps what it computed of trials that do not run, and computes nothing before one of them
    has changed or another one runs."""

    def __init__(self, spec: StudySpec) -> None:
        self._surrogate = Surrogate(replace(spec, objectives=spec.objectives[:1]))
        self._running: dict[int, Trial] = {}  # without what they have reported
        self._seen: tuple[list[Trial], StudyView] | None = None
        self._found: Gain | None = None

    def gain(self, view: StudyView) -> Gain | None:
        """Of the next trial, after those that run; what these have reported so far does not count. None if too few
        trials have values, or the model can't be computed."""
        trials = {number: self._without_reports(one) if one.live else one for number, one in view.trials.items()}
        if not self._is_seen(view, seen := list(trials.values())):
            self._found, self._seen = self._computed(replace(view, trials=trials)), (seen, view)
        return self._found

    def _without_reports(self, trial: Trial) -> Trial:
        known = self._running.get(trial.number)
        if known is None or known.params is not trial.params:
            known = Trial(trial.study, trial.number, trial.params, origin=trial.origin, created_at=trial.created_at)
            self._running[trial.number] = known
        return known

    def _is_seen(self, view: StudyView, trials: list[Trial]) -> bool:
        if self._seen is None:
            return False
        seen, last = self._seen
        same = view.seed == last.seed and view.outside == last.outside and view.prior == last.prior
        return same and len(seen) == len(trials) and not any(map(is_not, seen, trials))

    def _computed(self, view: StudyView) -> Gain | None:
        evidence = self._surrogate.evidence(view)
        if np.sum(~np.isnan(evidence.losses[:, 0]) & ~evidence.refused) < FEWEST:
            return None
        try:
            return self._gain(view, evidence, np.random.default_rng((view.seed, len(view.trials))))
        except NotComputable:
            return None

    def _gain(self, view: StudyView, evidence: Evidence, random: np.random.Generator) -> Gain:
        fitted = self._surrogate.fitted(view, evidence, np.ones(1))
        pending = self._surrogate.pending(evidence)
        watched = Watched(fitted.value, pending)

        def score(coordinates: Array) -> Array:
            return fitted.log_gain(coordinates, watched) + fitted.log_allowed(coordinates)

        places, scores = searched(self._surrogate.records, evidence, score, random)
        if not len(places):
            return Gain(0.0, 0.0, 0.0)
        best = places[np.argsort(-scores, kind="stable")[:_POINTS]]
        points = self._surrogate.records.cube.coordinates(*self._surrogate.records.cube.fitted(best))
        gains, weights = _by_shape(fitted, pending, points, random)
        unit = fitted.scale.deviation
        return Gain(float(gains @ weights) * unit, *(_part(gains, weights, part) * unit for part in (_LOW, _HIGH)))


def _by_shape(fitted: Fitted, pending: Array, points: Array, random: np.random.Generator) -> tuple[Array, Array]:
    """What each shape expects at the best of the points, and its probability."""
    shape = fitted.value.shape
    steps = random.normal(0.0, _SPREAD, size=(_SHAPES + 1, len(shape.lengths) + 2))
    steps[0] = 0.0
    gains, logs = [], []
    for step in steps:
        process = fitted.value.shaped(shape.moved(step))
        best = least(process, fitted.allowed)
        at = log_improvement(*Watched(process, pending).expected(points), best) + fitted.log_allowed(points)
        gains.append(math.exp(float(at.max())))
        logs.append(process.log_probability + 0.5 * float(step @ step) / _SPREAD**2)  # not as often as it is drawn
    weights = np.exp(np.array(logs) - max(logs))
    return np.array(gains), weights / weights.sum()


def _part(gains: Array, weights: Array, part: float) -> float:
    order = np.argsort(gains, kind="stable")
    index = int(np.searchsorted(np.cumsum(weights[order]), part))
    return float(gains[order[min(index, len(order) - 1)]])
