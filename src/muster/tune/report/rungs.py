"""The levels at which a study looks at its trials: who reached them, what was kept, and what it cost to get there."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median
from typing import Final, Literal

from muster.api.numbers import json_number
from muster.api.studies import RungView
from muster.core.entities.study import Rung, Trial
from muster.core.money import divide
from muster.tune.report.facts import StudyFacts
from muster.tune.view import StudyView

LEVELS: Final = 40  # of one bracket that are told
_MICRO: Final = 1_000_000  # times are weights in whole microseconds
_Fate = Literal["went_on", "running", "complete", "paused", "stopped", "other"]
_FATES: Final[tuple[_Fate, ...]] = ("went_on", "running", "complete", "paused", "stopped", "other")


@dataclass
class _Sum:
    fates: dict[_Fate, int] = field(default_factory=lambda: dict.fromkeys(_FATES, 0))
    values: list[float] = field(default_factory=list)
    cost: int = 0
    seconds: float = 0.0


def rungs(view: StudyView, facts: StudyFacts) -> list[RungView]:
    """By bracket and level. What a trial cost is spread evenly over the time that it ran, or over its steps where its
    levels have no time; its part below the first level that it did not reach counts to that one. Trials that repeat
    others are left out. None if no trial passed a level."""
    trials = [one for one in view.trials.values() if one.origin != "confirm"]
    if not any(one.rungs for one in trials):
        return []
    kept = _levels(trials)
    sums: dict[tuple[int, float | None], _Sum] = {}
    for bracket, levels in kept.items():
        sums.update({(bracket, level): _Sum() for level in (*levels, None)})
    for trial in trials:
        _add(sums, kept.get(trial.bracket, []), trial, facts)
    sign = view.spec.objective.sign
    views = [_view(bracket, level, one, sign) for (bracket, level), one in sums.items()]
    return [one for one in views if one["level"] is not None or one["cost"] or one["seconds"]]


def _levels(trials: Iterable[Trial]) -> dict[int, list[float]]:
    """The levels of each bracket; of more than `LEVELS`, so many at equal distances, with the first and the last."""
    found: dict[int, set[float]] = {}
    for trial in trials:
        found.setdefault(trial.bracket, set()).update(one.level for one in trial.rungs)
    return {bracket: _thinned(sorted(levels)) for bracket, levels in sorted(found.items())}


def _thinned(levels: list[float]) -> list[float]:
    if len(levels) <= LEVELS:
        return levels
    return [levels[(len(levels) - 1) * part // (LEVELS - 1)] for part in range(LEVELS)]


def _add(sums: dict[tuple[int, float | None], _Sum], levels: Sequence[float], trial: Trial, facts: StudyFacts) -> None:
    known = frozenset(levels)
    passed = [one for one in trial.rungs if one.level in known]
    for rung, later in pairwise([*passed, None]):
        assert rung is not None, "only the last one is followed by none"
        one = sums[(trial.bracket, rung.level)]
        one.fates["went_on" if later is not None else _fate(trial)] += 1
        if rung.values and rung.values[0] == rung.values[0]:  # not NaN
            one.values.append(rung.values[0])
    weights = _parts([round(one.seconds * _MICRO) for one in passed], round(facts.seconds(trial) * _MICRO))
    if not all(one.seconds for one in passed):
        weights = _parts([one.step for one in passed], trial.step)
    weights = weights if any(weights) else [1, *([0] * (len(weights) - 1))]
    costs = divide(facts.cost(trial), weights)
    for level, weight, cost in zip(_goals(levels, passed), weights, costs, strict=True):
        one = sums[(trial.bracket, level)]
        one.cost += cost
        one.seconds += facts.seconds(trial) * weight / sum(weights)


def _goals(levels: Sequence[float], passed: Sequence[Rung]) -> list[float | None]:
    """The levels that the parts of a trial led to: those that it passed, and the next one; None: there is none."""
    last = passed[-1].level if passed else None
    onward = next((one for one in levels if last is None or one > last), None)
    return [*(one.level for one in passed), onward]


def _parts(passed: Sequence[int], end: int) -> list[int]:
    """How much of a trial, in steps or in time, led to each level that it passed, and came after the last."""
    parts, at = list[int](), 0
    for one in (*passed, end):
        parts.append(max(one - at, 0))
        at = max(at, one)
    return parts


def _fate(trial: Trial) -> _Fate:
    """Of a trial at the last level that it passed."""
    if trial.phase != "ended":
        return "paused" if trial.phase == "paused" else "running"
    if trial.outcome == "complete" or trial.outcome == "stopped":
        return trial.outcome
    return "other"


def _view(bracket: int, level: float | None, one: _Sum, sign: float) -> RungView:
    return {
        "bracket": bracket,
        "level": level,
        "reached": sum(one.fates.values()),
        "went_on": one.fates["went_on"],
        "running": one.fates["running"],
        "complete": one.fates["complete"],
        "paused": one.fates["paused"],
        "stopped": one.fates["stopped"],
        "other": one.fates["other"],
        "best": json_number(sign * min(sign * value for value in one.values)) if one.values else None,
        "median": json_number(median(one.values)) if one.values else None,
        "cost": one.cost,
        "seconds": one.seconds,
    }
