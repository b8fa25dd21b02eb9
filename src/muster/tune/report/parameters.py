"""What was tried of each parameter, how good it was, and whether the best trials are at an end of the space."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from statistics import median
from typing import Final, Literal

from muster.api.numbers import json_number
from muster.api.studies import BinView, CellView, GridView, ParameterView
from muster.tune.report.axis import Axis, axis_of
from muster.tune.report.ranking import Ranking
from muster.tune.space import Parameter
from muster.tune.view import StudyView

EDGE: Final = 0.1  # of the axis, at each end
_SHARE: Final = 0.7  # of the best trials that are there, so that it is said
_ENOUGH: Final = 20  # trials with a value, before anything is said of an end
_MANY: Final = 5  # values that a parameter has, so that it is said of it

Binned = Mapping[int, int]  # number of a trial → part of an axis


def axes(view: StudyView, importance: Mapping[str, float]) -> list[Axis]:
    """The most important parameter first, then in the order of the file."""
    ordered = sorted(view.spec.space.parameters, key=lambda one: -importance.get(one.name, -1.0))
    trials = view.trials.values()
    return [axis_of(one, (each.params[one.name] for each in trials if one.name in each.params)) for one in ordered]


def binned(view: StudyView, axis: Axis) -> Binned:
    """The part of the axis that each trial is in; those that don't have the parameter are left out."""
    name = axis.parameter.name
    place = axis.bin if axis.listed is None else _remembered(axis.bin)
    found = ((trial.number, place(trial.params.get(name))) for trial in view.trials.values())
    return {number: part for number, part in found if part is not None}


def _remembered(place: Callable[[object], int | None]) -> Callable[[object], int | None]:
    """For values of which there are few. `1`, `1.0` and `True` are equal, and not the same value."""
    known: dict[tuple[type, object], int | None] = {}

    def of(value: object) -> int | None:
        key = (type(value), value)
        try:
            if key not in known:
                known[key] = place(value)
            return known[key]
        except TypeError:  # a list, which somebody asked for
            return place(value)

    return of


def parameters(
    view: StudyView, ranks: Ranking, axes: Sequence[Axis], parts: Sequence[Binned], importance: Mapping[str, float]
) -> list[ParameterView]:
    return [_view(view, ranks, axis, found, importance) for axis, found in zip(axes, parts, strict=True)]


def grid(ranks: Ranking, axes: Sequence[Axis], parts: Sequence[Binned]) -> GridView | None:
    """Where the trials are good in the plane of the first two parameters: the median of the ranks in each cell, which
    is a fact of the trials that are there, and no interpolation."""
    if len(axes) < 2 or not ranks.order:
        return None
    x, y = parts[:2]
    cells: dict[tuple[int, int], list[int]] = {}
    for place, trial in enumerate(ranks.order):
        if trial.number in x and trial.number in y:
            cells.setdefault((x[trial.number], y[trial.number]), []).append(place)
    found = [_cell(ranks, at, places) for at, places in sorted(cells.items())]
    return {"x": axes[0].parameter.name, "y": axes[1].parameter.name, "cells": found}


def _cell(ranks: Ranking, at: tuple[int, int], places: Sequence[int]) -> CellView:
    """`places`: of the trials in the order of their ranks, the best first."""
    best = ranks.order[places[0]].values if places[0] < ranks.complete else None
    return {
        "x": at[0],
        "y": at[1],
        "trials": len(places),
        "standing": median(places) / len(ranks.order),
        "best": json_number(best[0]) if best is not None else None,
    }


def _view(view: StudyView, ranks: Ranking, axis: Axis, found: Binned, importance: Mapping[str, float]) -> ParameterView:
    one = axis.parameter
    return {
        "name": one.name,
        "kind": one.kind,
        "low": one.low,
        "high": one.high,
        "log": one.log,
        "step": one.step,
        "choices": list(one.choices),
        "when": one.when,
        "listed": axis.listed is not None,
        "importance": importance.get(one.name),
        "edge": _edge(view.spec.space.by_name[one.name], ranks),
        "trials": len(found),
        "bins": _bins(ranks, axis, found),
    }


def _bins(ranks: Ranking, axis: Axis, parts: Binned) -> list[BinView]:
    tried = Counter(parts.values())
    values: list[list[float]] = [[] for _ in range(axis.bins)]
    for trial in ranks.finished:  # the best first
        if trial.values is not None and trial.number in parts:
            values[parts[trial.number]].append(trial.values[0])
    return [
        {
            "label": axis.label(at),
            "start": at / axis.bins,
            "end": (at + 1) / axis.bins,
            "trials": tried[at],
            "complete": len(found),
            "best": json_number(found[0]) if found else None,
            "median": json_number(median(found)) if found else None,
        }
        for at, found in enumerate(values)
    ]


def _edge(parameter: Parameter, ranks: Ranking) -> Literal["low", "high"] | None:
    """Of a parameter that is a number: the end at which most of the best tenth of the trials are, 5 to 20 of them."""
    sound, axis = ranks.order[: ranks.sound], Axis(parameter)
    few = axis.listed is not None and len(axis.listed) < _MANY
    if parameter.kind == "choice" or few or len(sound) < _ENOUGH:
        return None
    best = sound[: min(max(5, len(sound) // 10), 20)]
    places = [axis.place(one.params.get(parameter.name)) for one in best]
    room = max(EDGE, 1 / len(axis.listed) if axis.listed is not None else 0.0)  # one value, if they are listed
    if sum(one is not None and one <= room for one in places) >= _SHARE * len(best):
        return "low"
    return "high" if sum(one is not None and one >= 1 - room for one in places) >= _SHARE * len(best) else None
