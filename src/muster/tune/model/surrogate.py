"""The model of a study: what it expects of points, of their cost, and whether they break a constraint.

It sees at most `MOST` trials: the best, and of the others a sample that stays the same while the study grows. The shape
of a process is fitted when a tenth more trials have ended, from those that had ended by then, so that it depends on the
view alone; between these times only the values change.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from muster.tune.evidence import (
    Evidence,
    Scale,
    chosen,
    evidence_of,
    filled,
    joined,
    prior_evidence,
    scale_of,
    trial_evidence,
)
from muster.tune.model.cube import Array
from muster.tune.model.gaussian import Gaussian, Shape, Watched, fit, usual_shape
from muster.tune.model.improvement import log_improvement, log_probability
from muster.tune.records import Records
from muster.tune.spec import StudySpec
from muster.tune.view import StudyView

MOST: Final = 256  # rows of the model
MOST_FITTED: Final = 128  # rows that a shape is fitted to
GROWTH: Final = 1.1
_CHEAPEST: Final = 5  # trials with a cost, before it counts
_LIKELY: Final = math.log(0.5)
_CAUTION: Final = 10.0
_ALIKE: Final = 0.05  # deviation of the logarithm of costs, below which they are all the same


@dataclass(frozen=True, slots=True)
class Shapes:
    value: Shape
    cost: Shape
    refusal: Shape


@dataclass(frozen=True)
class Fitted:
    """The model of one view. `best`: what it expects of the best trial that breaks no constraint."""

    scale: Scale
    value: Gaussian
    best: float
    allowed: Array  # coordinates of trials that break no constraint and did not fail; of all, if there are none
    cost: Gaussian | None
    cost_deviation: float
    refusal: Gaussian | None
    refusals: tuple[float, float]  # mean and deviation of the labels

    def log_gain(self, coordinates: Array, watched: Watched) -> Array:
        """The expected improvement; `watched` is the process that counts trials that run."""
        return log_improvement(*watched.expected(coordinates), self.best)

    def log_cost(self, coordinates: Array) -> Array:
        """The logarithm of 1 + cost / usual cost. A trial that costs next to nothing is preferred to a usual one only
        while it promises at least half as much: many that tell little cost time too."""
        if self.cost is None:
            return np.zeros(len(coordinates))
        usual = self.cost.mean(self.cost.likeness(coordinates)) * self.cost_deviation  # 0 of a usual one
        return np.asarray(np.logaddexp(usual, 0.0))

    def log_allowed(self, coordinates: Array) -> Array:
        """The probability that no constraint is broken. A point that likely breaks one has to promise far more."""
        if self.refusal is None:
            return np.zeros(len(coordinates))
        likeness = self.refusal.likeness(coordinates)
        mean, deviation = self.refusals
        expected = mean + deviation * self.refusal.mean(likeness)
        spread = deviation * np.sqrt(self.refusal.variance(likeness) + self.refusal.noise)
        chance = log_probability(-expected / spread)
        return np.where(chance < _LIKELY, chance + _CAUTION * (chance - _LIKELY), chance)


class Surrogate:
    """Made for one study; it keeps the shapes that it has fitted."""

    def __init__(self, spec: StudySpec) -> None:
        self.spec = spec
        self.records = Records(spec)
        self._shapes: dict[tuple[str, tuple[int, ...], int], Shapes] = {}

    def evidence(self, view: StudyView) -> Evidence:
        return evidence_of(self.records, view)

    def fitted(self, view: StudyView, evidence: Evidence, weights: Array) -> Fitted:
        """`weights`: of the objectives. Raises NotComputable."""
        shapes = self._shapes_of(view)
        seen = chosen(evidence, MOST)
        losses, says = _one_loss(seen, weights)
        scale, owner = scale_of(losses), self.records.cube.owner
        rows = seen.coordinates[says]
        value = Gaussian(shapes.value, rows, owner, scale.values(losses), seen.doubt[says])
        good = ~seen.refused[says] & ~np.isnan(seen.losses[says, 0])
        allowed = rows[good] if good.any() else rows
        best = least(value, allowed)
        return Fitted(scale, value, best, allowed, *self._cost(shapes, seen), *self._refusal(shapes, seen))

    def pending(self, evidence: Evidence) -> Array:
        """Coordinates of trials that run and have said nothing yet."""
        return np.asarray(self.records.rows.coordinates[self.records.waiting(evidence.numbers)])

    def _cost(self, shapes: Shapes, seen: Evidence) -> tuple[Gaussian | None, float]:
        found = _log_cost(self.records, seen)
        if found is None:
            return None, 0.0
        rows, values, deviation = found
        return Gaussian(shapes.cost, rows, self.records.cube.owner, values, np.ones(len(values))), deviation

    def _refusal(self, shapes: Shapes, seen: Evidence) -> tuple[Gaussian | None, tuple[float, float]]:
        if not seen.refused.any():
            return None, (0.0, 1.0)
        labels, mean, deviation = _labels(seen)
        ones = np.ones(len(labels))
        return Gaussian(shapes.refusal, seen.coordinates, self.records.cube.owner, labels, ones), (mean, deviation)

    def _shapes_of(self, view: StudyView) -> Shapes:
        """Fitted to what had ended when the number of such trials last passed a milestone."""
        ended = self.records.by_end()
        first = ended[: _milestone(len(ended) + len(view.prior)) - len(view.prior)] if ended else []
        key = (view.id, tuple(first), len(view.prior))
        if key not in self._shapes:
            known = trial_evidence(self.records, np.array(sorted(first), dtype=np.intp))
            seen = chosen(joined(prior_evidence(self.records, view.prior), known), MOST_FITTED)
            self._shapes = {key: self._fit(seen)}
        return self._shapes[key]

    def _fit(self, seen: Evidence) -> Shapes:
        owner, count = self.records.cube.owner, len(self.spec.objectives)
        value = cost = refusal = usual_shape(self.records.cube.width)
        losses, says = _one_loss(seen, np.full(count, 1.0 / count))
        if len(losses) > 1:
            value = fit(seen.coordinates[says], owner, scale_of(losses).values(losses), seen.doubt[says])
        if (found := _log_cost(self.records, seen)) is not None:
            cost = fit(found[0], owner, found[1], np.ones(len(found[1])))
        if seen.refused.any():
            labels, _, _ = _labels(seen)
            refusal = fit(seen.coordinates, owner, labels, np.ones(len(labels)))
        return Shapes(value, cost, refusal)


def least(process: Gaussian, coordinates: Array) -> float:
    """The least that it expects of any of these points."""
    return float(process.mean(process.likeness(coordinates)).min())


def _milestone(count: int) -> int:
    """The last one that so many trials have passed."""
    passed = 1
    while (after := max(passed + 1, math.floor(passed * GROWTH))) <= count:
        passed = after
    return passed


def _one_loss(seen: Evidence, weights: Array) -> tuple[Array, NDArray[np.bool_]]:
    """One number for each trial that has one, or failed. Of several objectives the worst one counts, in proportion to
    its weight, and a little their sum."""
    says = ~(seen.refused & np.isnan(seen.losses).any(axis=1))
    losses = seen.losses[says]
    if losses.shape[1] == 1:
        return filled(losses[:, 0]), says
    columns = []
    for index, weight in enumerate(weights):
        column = filled(losses[:, index])
        values = scale_of(column).values(column)
        columns.append(weight * (values - values.min()))
    each = np.stack(columns, axis=1)
    return each.max(axis=1) + 0.05 * each.sum(axis=1), says


def _log_cost(records: Records, seen: Evidence) -> tuple[Array, Array, float] | None:
    """Coordinates and values of trials that have a cost, and the deviation of its logarithm; None if they are too few,
    or all cost the same."""
    numbers = np.maximum(seen.numbers, 0)
    spent = np.where(seen.numbers >= 0, records.rows.spent[numbers], np.nan) if records.count else np.zeros(0)
    has = ~np.isnan(spent)
    if np.sum(has) < _CHEAPEST:
        return None
    logs = np.log(spent[has])
    deviation = float(logs.std())
    return (seen.coordinates[has], (logs - logs.mean()) / deviation, deviation) if deviation > _ALIKE else None


def _labels(seen: Evidence) -> tuple[Array, float, float]:
    """1 of what is refused, -1 of the others, and their mean and deviation before these were taken out."""
    labels = np.where(seen.refused, 1.0, -1.0)
    mean, deviation = float(labels.mean()), max(float(labels.std()), 0.1)
    return (labels - mean) / deviation, mean, deviation
