"""Trials that no other is better than: in all objectives, and in quality for their cost."""

from __future__ import annotations

import math
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from muster.tune.report.facts import StudyFacts
from muster.tune.report.ranking import Ranking
from muster.tune.view import StudyView

MOST: Final = 300  # trials of a front that are kept


def pareto(view: StudyView, ranks: Ranking) -> list[int]:
    """The numbers of the trials that no other is at least as good as in all objectives and better in one, sorted by
    the first objective; none with one objective. Trials with equal values are both on it."""
    if len(view.spec.objectives) < 2 or not ranks.complete:
        return []
    found = [(view.losses(one.values), one.number) for one in ranks.finished if one.values is not None]
    found = sorted(one for one in found if all(map(math.isfinite, one[0])))
    if not found:
        return []
    losses = np.array([loss for loss, _ in found])
    return _thinned([found[place][1] for place in _undominated(losses)])


def cheapest(view: StudyView, facts: StudyFacts, ranks: Ranking) -> tuple[Literal["cost", "seconds"], list[int]]:
    """What trials are compared by, and those that no trial of less cost is better than, the cheapest first."""
    measure: Literal["cost", "seconds"] = "cost" if any(map(facts.cost, ranks.order)) else "seconds"
    of = facts.cost if measure == "cost" else facts.seconds
    found: list[int] = []
    best = math.inf
    for trial in sorted(ranks.finished, key=lambda one: (of(one), ranks.ranks[one.number])):
        loss = view.loss(trial)
        if loss is not None and loss < best:
            best = loss
            found.append(trial.number)
    return measure, _thinned(found)


def _undominated(losses: NDArray[np.float64]) -> list[int]:
    """Rows that no other dominates. They are sorted by their columns, so that only an earlier one can."""
    if losses.shape[1] == 2:
        return _undominated_pairs(losses)
    front: list[int] = []
    kept = np.empty_like(losses)  # its first rows are those of the front so far
    for place, row in enumerate(losses):
        before = kept[: len(front)]
        if not ((before <= row).all(axis=1) & (before < row).any(axis=1)).any():
            kept[len(front)] = row
            front.append(place)
    return front


def _undominated_pairs(losses: NDArray[np.float64]) -> list[int]:
    """The same in one pass: the last of the front has the least second loss so far."""
    front: list[int] = []
    last = (math.inf, math.inf)
    for place, (first, second) in enumerate(losses.tolist()):
        if second < last[1] or (first, second) == last:
            front.append(place)
            last = (first, second)
    return front


def _thinned(numbers: list[int]) -> list[int]:
    """Evenly, with both ends."""
    if len(numbers) <= MOST:
        return numbers
    return [numbers[(len(numbers) - 1) * part // (MOST - 1)] for part in range(MOST)]
