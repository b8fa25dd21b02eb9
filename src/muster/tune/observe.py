"""What a trial has shown: the levels that it passed, and the values that it ends with. Pure functions of its curves."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import itemgetter
from typing import Any, Final

from muster.core.entities.study import Rung, Trial, Values
from muster.tune.spec import Objective, StudySpec
from muster.tune.stopping.base import Stopping

Points = Sequence[tuple[int, float]]  # (step, value), ascending, each step once
Curves = Mapping[str, Points]  # by metric
_STEP: Final = itemgetter(0)


@dataclass(frozen=True, slots=True)
class FinalValues:
    """`values` are None if an objective was never reported, or is no number: then `diverged`."""

    values: Values | None
    extra: dict[str, float] = field(default_factory=dict)
    violated: tuple[str, ...] = ()
    diverged: bool = False
    missing: tuple[str, ...] = ()  # objectives that were never reported
    step: int = 0


def passed_rungs(spec: StudySpec, stopping: Stopping, trial: Trial, curves: Curves) -> list[Rung] | None:
    """The levels that the trial has passed since the last look; None if an objective was no number at one of them.

    Values of a level are final: what is reported for its steps later does not change them.
    """
    found: list[Rung] = []
    while (level := stopping.next_level(_with(trial, found))) is not None:
        step = _step_of(spec, stopping, level, curves)
        if step is None:
            return found
        values = tuple(_value(one, curves[one.metric], step) for one in spec.objectives)
        if not all(map(math.isfinite, values)):
            return None
        found.append(Rung(level, step, values))
    return found


def final_values(
    spec: StudySpec, curves: Curves, built_in: Mapping[str, float], params: Mapping[str, Any]
) -> FinalValues:
    """`built_in`: what every trial has, such as its seconds; constraints may read it beside metrics and parameters."""
    step = max((points[-1][0] for points in curves.values() if points), default=0)
    last = {name: points[-1][1] for name, points in curves.items() if points}
    own = {one.metric for one in spec.objectives}
    extra = {name: value for name, value in last.items() if name not in own and math.isfinite(value)}
    missing = tuple(one.metric for one in spec.objectives if not curves.get(one.metric))
    if missing:
        return FinalValues(None, extra, missing=missing, step=step)
    values = tuple(_value(one, curves[one.metric], step) for one in spec.objectives)
    if not all(map(math.isfinite, values)):
        return FinalValues(None, extra, diverged=True, step=step)
    names = {**params, **built_in, **last}
    violated = tuple(one.text for one in spec.limits if one.holds(names) is not True)
    return FinalValues(values, extra, violated, step=step)


def _with(trial: Trial, rungs: Sequence[Rung]) -> Trial:
    return replace(trial, rungs=(*trial.rungs, *rungs)) if rungs else trial


def _step_of(spec: StudySpec, stopping: Stopping, level: float, curves: Curves) -> int | None:
    """The step at which all objectives have passed the level; None if one has not."""
    steps = []
    for one in spec.objectives:
        points = curves.get(one.metric, ())
        index = bisect_left(points, level, key=_STEP) if stopping.by == "step" else math.ceil(level) - 1
        if index >= len(points):
            return None
        steps.append(points[max(index, 0)][0])
    return max(steps)


def _value(objective: Objective, points: Points, step: int) -> float:
    """The value at a step, or the last before it; the first of all if it begins later."""
    upto = points[: bisect_right(points, step, key=_STEP)] or points[:1]
    if objective.take == "last":
        return upto[-1][1]
    numbers = [value for _, value in upto if math.isfinite(value)]
    return (min if objective.direction == "minimize" else max)(numbers, default=math.nan)
