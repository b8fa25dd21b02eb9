"""Learning curves of some trials: which ones, and at most so many points of each, with their extremes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final, Literal

from muster.api.numbers import json_number
from muster.api.studies import TrialCurve
from muster.core.entities.study import Trial
from muster.tune.report.facts import StudyFacts
from muster.tune.report.ranking import Ranking, ranking
from muster.tune.view import StudyView

CURVES: Final = 40  # trials
POINTS: Final = 120  # of a curve
Point = tuple[float, float]  # step, value


def curve_numbers(view: StudyView, ranks: Ranking | None = None) -> list[int]:
    """The trials whose curves a report shows: the best, the median, and others at equal distances in the ranking."""
    order = (ranks or ranking(view)).order
    if len(order) <= CURVES:
        return [one.number for one in order]
    places = {0, _median(order), *((len(order) - 1) * part // (CURVES - 2) for part in range(CURVES - 1))}
    return [order[place].number for place in sorted(places)]


def curves(view: StudyView, facts: StudyFacts, ranks: Ranking) -> list[TrialCurve]:
    middle = ranks.order[_median(ranks.order)].number if ranks.order else None
    found = []
    for number in curve_numbers(view, ranks):
        role: Literal["best", "median", "other"] = "median" if number == middle else "other"
        role = "best" if ranks.sound and number == ranks.order[0].number else role
        found.append(_curve(view.trials[number], role, facts))
    return [one for one in found if one["points"]]


def thinned(points: Sequence[Point], most: int) -> list[Point]:
    """The first and the last, and the lowest and the highest of each of equally many between them."""
    if len(points) <= most:
        return list(points)
    inner, parts = points[1:-1], max(1, (most - 2) // 2)
    kept = [points[0]]
    for part in range(parts):
        some = inner[len(inner) * part // parts : len(inner) * (part + 1) // parts]
        ends = {min(some, key=_height), max(some, key=_height)} if some else set()
        kept += sorted(ends, key=lambda one: one[0])
    return [*kept, points[-1]]


def _height(point: Point) -> float:
    """What is no number is above all: it is never left out."""
    return math.inf if math.isnan(point[1]) else point[1]


def _median(order: Sequence[Trial]) -> int:
    return (len(order) - 1) // 2


def _curve(trial: Trial, role: Literal["best", "median", "other"], facts: StudyFacts) -> TrialCurve:
    given = facts.curves.get(trial.number)
    points = thinned(sorted(given.points), POINTS) if given is not None and given.points else _passed(trial)
    return {
        "number": trial.number,
        "role": role,
        "measured": given is not None and bool(given.points),
        "points": [{"step": step, "value": json_number(value)} for step, value in points],
        "marks": [{"step": step, "what": what} for step, what in (given.marks if given is not None else ())],
    }


def _passed(trial: Trial) -> list[Point]:
    points = {float(one.step): one.values[0] for one in trial.rungs if one.values}
    if trial.values:
        points[float(trial.step)] = trial.values[0]
    return thinned(sorted(points.items()), POINTS)
