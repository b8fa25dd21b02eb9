"""The scale of each objective: where its values are, and which of them a chart leaves at its margin."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from muster.api.studies import ObjectiveView
from muster.core.entities.study import Trial
from muster.tune.report.ranking import Ranking
from muster.tune.spec import Objective
from muster.tune.view import StudyView

KEPT: Final = 0.9  # of the values, the best: a chart shows these in any case
_ENOUGH: Final = 5  # complete trials, so that they alone make the scale
_FAR: Final = 3.0  # times their range: when the worst value is farther away, the others are drawn at the margin
_DECADES: Final = 100.0  # of the largest value to the smallest, from which on the scale is logarithmic


def objectives(view: StudyView, ranks: Ranking) -> list[ObjectiveView]:
    return [_view(ranks, place, objective) for place, objective in enumerate(view.spec.objectives)]


def _view(ranks: Ranking, place: int, objective: Objective) -> ObjectiveView:
    losses = _losses(ranks.order, place, objective)
    finished = _losses(ranks.finished, place, objective)
    made: ObjectiveView = {
        "metric": objective.metric, "direction": objective.direction, "take": objective.take, "low": None,
        "high": None, "shown_low": None, "shown_high": None, "log": False, "beyond": 0,
    }  # fmt: skip
    if losses:
        # Values of trials that were stopped early are of another kind, mostly far worse.
        kept = finished if len(finished) >= _ENOUGH else losses
        shown = _shown(kept)
        made["low"], made["high"] = sorted((objective.sign * losses[0], objective.sign * losses[-1]))
        near, far = sorted((objective.sign * kept[0], objective.sign * shown))
        made["shown_low"], made["shown_high"] = near, far
        made["log"] = near > 0 and far / near >= _DECADES
        made["beyond"] = sum(one > shown for one in losses)
    return made


def _losses(trials: Sequence[Trial], place: int, objective: Objective) -> list[float]:
    """The finite ones, sorted."""
    latest = (one.latest for one in trials)
    losses = (objective.sign * found[place] for found in latest if found is not None)
    return sorted(one for one in losses if math.isfinite(one))


def _shown(losses: Sequence[float]) -> float:
    """The worst loss that a chart shows. A few trials that went wrong must not hide how the others differ."""
    best, worst = losses[0], losses[-1]
    kept = losses[math.ceil(KEPT * len(losses)) - 1]
    return kept if kept > best and worst - best > _FAR * (kept - best) else worst
