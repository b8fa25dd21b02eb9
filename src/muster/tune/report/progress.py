"""The best so far, over trials, time and money."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from muster.api.numbers import json_number
from muster.api.studies import BestPoint, BestSoFar
from muster.core.entities.study import Trial
from muster.tune.report.facts import StudyFacts
from muster.tune.report.ranking import Ranking
from muster.tune.spec import Objective
from muster.tune.view import StudyView

POINTS: Final = 400  # improvements that are kept of one objective


def over_in_turn(view: StudyView) -> list[Trial]:
    """The trials that have ended, in the order of their ends, without those that repeat others with another seed."""
    over = [one for one in view.trials.values() if one.origin != "confirm" and one.ended_at is not None]
    return sorted(over, key=lambda one: (one.ended_at, one.number))


def best_so_far(view: StudyView, facts: StudyFacts, ranks: Ranking, over: Sequence[Trial]) -> list[BestSoFar]:
    """For each objective, the trials that ended better than all before them; those that are complete and break no
    constraint count. What a trial cost counts when it ends."""
    counted = {one.number for one in ranks.finished}
    points: list[list[BestPoint]] = [[] for _ in view.spec.objectives]
    best = [math.inf] * len(points)
    cost, began = 0, facts.study.created_at
    for ended, trial in enumerate(over, start=1):
        cost += facts.cost(trial)
        if trial.number not in counted or trial.values is None or trial.ended_at is None:
            continue
        seconds = max(0.0, trial.ended_at - began)
        for place, loss in enumerate(view.losses(trial.values)):
            if loss < best[place]:
                best[place], value = loss, json_number(trial.values[place])
                point: BestPoint = {
                    "trial": trial.number, "ended": ended, "seconds": seconds, "cost": cost, "value": value,
                }  # fmt: skip
                points[place].append(point)
    until = facts.study.ended_at if facts.study.ended_at is not None else facts.now
    now = (
        len(over),
        max(0.0, until - began),
        cost + sum(facts.cost(one) for one in view.trials.values() if one.origin != "confirm" and one.ended_at is None),
    )
    return [_curve(one, found, *now) for one, found in zip(view.spec.objectives, points, strict=True)]


def _curve(objective: Objective, points: list[BestPoint], ended: int, seconds: float, cost: int) -> BestSoFar:
    return {"metric": objective.metric, "points": _thinned(points), "ended": ended, "seconds": seconds, "cost": cost}


def _thinned(points: list[BestPoint]) -> list[BestPoint]:
    """The first, and the last of each of equally many: the last of all is the best."""
    if len(points) <= POINTS:
        return points
    parts = POINTS - 1
    return [points[0], *(points[len(points) * part // parts - 1] for part in range(1, parts + 1))]
