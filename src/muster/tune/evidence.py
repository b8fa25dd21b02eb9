"""What a model learns from: one value for each of some trials, and how far each is to be trusted.

A trial that has run to its end counts with its value. One that was stopped, paused, or still runs counts with what it
had reached at its highest level: a straight line through the trials that got further says what follows from that. While
too few have ended, the highest level that enough trials have passed takes the place of the end. A trial that failed or
diverged counts as bad as the worst.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from muster.tune.model.cube import Array, Mask
from muster.tune.records import Records, located
from muster.tune.space import Params
from muster.tune.view import Prior, StudyView

ENOUGH: Final = 4  # trials at a level, for it to take the place of the end
_FEWEST: Final = 3  # trials that a line is drawn through
_DOUBTFUL: Final = 4.0  # times the noise of others: a value that follows from a lower level, or was made elsewhere
_GOLDEN: Final = (math.sqrt(5.0) - 1.0) / 2.0
_BENT: Final = 1.0  # share of the better half's range, from which worse values are pressed together


@dataclass(frozen=True, slots=True)
class Evidence:
    """`losses` has NaN where a trial failed; `refused` where a constraint is broken; (n, objectives), (n,)."""

    coordinates: Array
    losses: Array
    doubt: Array
    refused: Mask
    numbers: NDArray[np.intp]  # of the trials; -1, -2, ... of the points that were tried elsewhere

    def __len__(self) -> int:
        return len(self.doubt)

    def some(self, kept: NDArray[np.intp]) -> Evidence:
        return Evidence(
            self.coordinates[kept], self.losses[kept], self.doubt[kept], self.refused[kept], self.numbers[kept]
        )


def evidence_of(records: Records, view: StudyView) -> Evidence:
    """Of everything that the view has, points that were tried elsewhere first."""
    records.follow(view)
    used = np.nonzero(records.rows.use[: records.count])[0]
    return joined(prior_evidence(records, view.prior), trial_evidence(records, used))


def params_of(view: StudyView, number: int) -> Params:
    return view.trials[number].params if number >= 0 else view.prior[-1 - number].params


def chosen(evidence: Evidence, most: int) -> Evidence:
    """At most so many. A third are the best. The others are those whose numbers come first in an order that mixes all
    numbers, so that the sample stays nearly the same while a study grows."""
    if len(evidence) <= most:
        return evidence
    losses = np.where(np.isnan(evidence.losses[:, 0]) | evidence.refused, np.inf, evidence.losses[:, 0])
    order = np.argsort(losses, kind="stable")
    best, others = order[: most // 3], order[most // 3 :]
    mixed = np.argsort(np.mod(evidence.numbers[others] * _GOLDEN, 1.0), kind="stable")
    return evidence.some(np.sort(np.concatenate([best, others[mixed[: most - len(best)]]])))


def prior_evidence(records: Records, prior: Sequence[Prior]) -> Evidence:
    """Points that were tried elsewhere, as far as they are points of the space."""
    space = records.spec.space
    good = {
        index: one for index, one in enumerate(prior) if space.fits(one.params) and all(map(math.isfinite, one.values))
    }
    signs = np.array([one.sign for one in records.spec.objectives])
    values = [one.values[: len(signs)] for one in good.values()]
    losses = np.array(values, dtype=float).reshape(len(good), len(signs)) * signs
    _, coordinates = located(records.cube, [one.params for one in good.values()])
    numbers = -1 - np.array(list(good), dtype=np.intp)
    return Evidence(coordinates, losses, np.full(len(good), _DOUBTFUL), np.zeros(len(good), dtype=bool), numbers)


def trial_evidence(records: Records, numbers: NDArray[np.intp]) -> Evidence:
    """Of these trials, as far as they say something."""
    rows = records.rows
    losses, doubt = rows.losses[numbers].copy(), np.ones(len(numbers))
    if records.columns:
        losses[:, 0], doubt = _projected(losses[:, 0], _levels(records, numbers))
    says = ~np.isnan(losses).any(axis=1) | rows.failed[numbers] | rows.refused[numbers]
    kept = numbers[says]
    return Evidence(rows.coordinates[kept], losses[says], doubt[says], rows.refused[kept], kept)


def joined(first: Evidence, second: Evidence) -> Evidence:
    return Evidence(
        np.concatenate([first.coordinates, second.coordinates]), np.concatenate([first.losses, second.losses]),
        np.concatenate([first.doubt, second.doubt]), np.concatenate([first.refused, second.refused]),
        np.concatenate([first.numbers, second.numbers]),
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Scale:
    """From losses to the values of a model, of mean 0 and deviation 1. The better half keeps its proportions, so that
    an improvement can be told in units of the objective; worse values are pressed together."""

    middle: float
    unit: float  # of the better half
    mean: float
    deviation: float

    def values(self, losses: Array) -> Array:
        return (_bent(losses, self.middle, self.unit) - self.mean) / self.deviation


def scale_of(losses: Array) -> Scale:
    """Of losses without NaN."""
    middle = float(np.median(losses))
    unit = max(_BENT * (middle - float(losses.min())), 1e-12 * max(abs(middle), 1e-12))
    bent = _bent(losses, middle, unit)
    return Scale(middle, unit, float(bent.mean()), max(float(bent.std()), 1e-12))


def _bent(losses: Array, middle: float, unit: float) -> Array:
    over = np.maximum(losses - middle, 0.0)
    return np.where(losses > middle, middle + unit * np.log1p(over / unit), losses)


def filled(losses: Array) -> Array:
    """Trials without a value are as bad as the worst."""
    known = losses[~np.isnan(losses)]
    return np.where(np.isnan(losses), known.max() if len(known) else 0.0, losses)


def _levels(records: Records, numbers: NDArray[np.intp]) -> Array:
    """What they had reached, by ascending level."""
    order = np.argsort(records.columns, kind="stable")
    return np.asarray(records.rows.reached[numbers][:, order])


def _projected(final: Array, reached: Array) -> tuple[Array, Array]:
    """The value at the end of every trial, or at the level that takes its place, and the doubt of it."""
    columns = [*reached.T, final]
    target = len(columns) - 1
    while target > 0 and np.sum(~np.isnan(columns[target])) < ENOUGH:
        target -= 1
    if np.sum(~np.isnan(columns[target])) < ENOUGH:
        target = int(np.argmax([np.sum(~np.isnan(one)) for one in columns]))
    found, doubt = columns[target].copy(), np.ones(len(final))
    for column in reversed(columns[:target]):
        open_ = np.isnan(found) & ~np.isnan(column)
        if open_.any():
            found[open_] = _line(column, columns[target], column[open_])
            doubt[open_] = _DOUBTFUL
    return found, doubt


def _line(low: Array, high: Array, at: Array) -> Array:
    """What follows at the higher level, from the trials that have both. Too few of them, or a line that falls, say no
    more than that the order stays."""
    both = ~np.isnan(low) & ~np.isnan(high)
    if np.sum(both) < _FEWEST or float(low[both].std()) == 0.0:
        shift = float(np.median(high[both] - low[both])) if both.any() else 0.0
        return at + shift
    start, end = low[both], high[both]
    slope = float(np.mean((start - start.mean()) * (end - end.mean())) / start.var())
    slope = max(slope, 0.1 * float(end.std() / start.std()))
    return np.asarray(end.mean() + slope * (at - start.mean()))
