"""The trials of a study as arrays by number, for searchers: followed from one view to the next, and the same from any.

A trial of which nothing has changed costs one comparison, so that a suggestion does not cost what the study's past is.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from itertools import compress
from operator import is_not
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from muster.core.entities.study import Rung, Trial
from muster.tune.model.cube import Array, Cube, Mask
from muster.tune.space import Params, key_of
from muster.tune.spec import StudySpec
from muster.tune.view import StudyView

Key = tuple[tuple[str, str, object], ...]
_ROOM: Final = 64  # rows at first
_FINENESS: Final = 4  # columns of levels for each doubling


@dataclass(slots=True)
class Rows:
    """One row for each trial, by number."""

    places: Array
    coordinates: Array
    losses: Array  # of the objectives, the better the smaller; NaN without values
    reached: Array  # the first objective by level; NaN where a trial has none
    spent: Array  # seconds or money of complete trials; NaN of the others
    ended_at: Array
    fits: Mask  # it is a point of the space
    use: Mask  # a search follows from it
    ended: Mask
    complete: Mask  # it has values
    failed: Mask  # its program failed, or its objective is no number: a bad point
    refused: Mask  # it is infeasible, or breaks a constraint

    def grown(self, count: int) -> Rows:
        return Rows(*[_longer(getattr(self, one.name), count) for one in fields(self)])


class Records:
    def __init__(self, spec: StudySpec) -> None:
        self.spec = spec
        self.cube = Cube(spec.space)
        self._forget(frozenset())

    def _forget(self, outside: frozenset[int]) -> None:
        self._outside = outside
        self.count = 0  # rows from the first trial to the last one
        self.columns: list[int] = []  # of `reached`, each of a range of levels
        self.tried: dict[Key, int] = {}  # how often each point was tried or is being tried
        self._seen: list[Trial] = []
        self._params: dict[int, Params] = {}
        self._keys: dict[int, Key] = {}
        self.rows: Rows = self._no_rows()

    def follow(self, view: StudyView) -> None:
        trials = list(view.trials.values())
        if len(trials) < len(self._seen) or view.outside != self._outside:  # an earlier view, or another space
            self._forget(view.outside)
        self.count = max(view.trials, default=-1) + 1
        if self.count > len(self.rows.use):
            self.rows = self.rows.grown(max(self.count, 2 * len(self.rows.use)))
        known, new = self._seen, trials[len(self._seen) :]
        for trial in compress(known, map(is_not, trials, known)):
            self._count(trial, -1)
        changed = [*compress(trials, map(is_not, trials, known)), *new]
        self._place([trial for trial in changed if self._params.get(trial.number) is not trial.params])
        for trial in changed:
            self._count(trial, 1)
            self._write(trial)
        self._seen = trials

    def may_try(self, params: Params) -> bool:
        return self.tried.get(key_of(params), 0) < self.spec.replicates

    def by_end(self) -> list[int]:
        """Used trials that have ended, in the order of their ends."""
        rows = self.rows
        ended = np.nonzero((rows.ended & rows.use)[: self.count])[0]
        return [int(one) for one in ended[np.argsort(rows.ended_at[ended], kind="stable")]]

    def waiting(self, heard: NDArray[np.intp]) -> NDArray[np.intp]:
        """Used trials that have not ended, but for those that have been heard of."""
        open_ = (self.rows.use & ~self.rows.ended)[: self.count]
        open_[heard[heard >= 0]] = False
        return np.nonzero(open_)[0]

    def _no_rows(self) -> Rows:
        flags = [np.zeros(_ROOM, dtype=bool) for _ in range(6)]
        numbers = [np.full(_ROOM, np.nan) for _ in range(2)]
        widths = (self.cube.width, self.spec.space.width, len(self.spec.objectives), 0)
        return Rows(*[np.full((_ROOM, width), np.nan) for width in widths], *numbers, *flags)

    def _place(self, trials: Sequence[Trial]) -> None:
        """The points of trials that are seen for the first time. Those whose parameters are no point of the space are
        not used."""
        for trial in trials:
            self._params[trial.number] = trial.params
            self._keys[trial.number] = key_of(trial.params)
            self.rows.fits[trial.number] = False
        space = self.spec.space
        good = [trial for trial in trials if trial.number not in self._outside and space.fits(trial.params)]
        if good:
            numbers = [trial.number for trial in good]
            self.rows.places[numbers], self.rows.coordinates[numbers] = located(
                self.cube, [trial.params for trial in good]
            )
            self.rows.fits[numbers] = True

    def _count(self, trial: Trial, by: int) -> None:
        repeated = trial.origin in ("confirm", "exploit") or trial.number in self._outside
        if not repeated and trial.outcome != "lost":
            key = self._keys[trial.number]
            self.tried[key] = self.tried.get(key, 0) + by

    def _write(self, trial: Trial) -> None:
        rows, at, outcome = self.rows, trial.number, trial.outcome
        finite = trial.values is not None and all(map(math.isfinite, trial.values))
        rows.use[at] = rows.fits[at] and trial.origin != "confirm" and outcome != "lost"
        rows.ended[at] = trial.phase == "ended"
        rows.ended_at[at] = trial.ended_at or 0.0
        rows.complete[at] = trial.phase == "ended" and finite and outcome in ("complete", "infeasible")
        rows.refused[at] = outcome == "infeasible" or bool(trial.violated)
        rows.failed[at] = trial.phase == "ended" and (
            outcome in ("failed", "diverged") or (outcome == "complete" and not finite)
        )
        rows.losses[at] = np.nan
        if rows.complete[at] and trial.values is not None:
            signed = zip(self.spec.objectives, trial.values, strict=False)
            rows.losses[at] = [one.sign * value for one, value in signed]
        self._write_rungs(at, trial.rungs)
        spent = float(trial.cost) if self.spec.cost is not None else trial.seconds
        rows.spent[at] = spent if outcome == "complete" and spent > 0 else np.nan

    def _write_rungs(self, at: int, rungs: Sequence[Rung]) -> None:
        """Levels that are nearly the same share a column, which has what a trial had reached at the lowest of them."""
        self.rows.reached[at] = np.nan
        for rung in reversed(rungs):
            if math.isfinite(rung.values[0]) and rung.level > 0:
                column = self._column(math.floor(_FINENESS * math.log2(rung.level)))
                self.rows.reached[at, column] = self.spec.objective.sign * rung.values[0]

    def _column(self, level: int) -> int:
        if level not in self.columns:
            self.columns.append(level)
            more = np.full((len(self.rows.reached), 1), np.nan)
            self.rows.reached = np.concatenate([self.rows.reached, more], axis=1)
        return self.columns.index(level)


def located(cube: Cube, points: Sequence[Params]) -> tuple[Array, Array]:
    """Places and coordinates of points of the space."""
    places = np.array([cube.place(params) for params in points]).reshape(len(points), cube.width)
    names = [one.name for one in cube.space.parameters]
    there = np.array([[name in params for name in names] for params in points], dtype=bool).reshape(places.shape)
    return places, cube.coordinates(places, there)


def _longer(array: NDArray[Any], count: int) -> NDArray[Any]:
    """With rows of NaN or False after its own."""
    made = np.zeros((count, *array.shape[1:]), dtype=array.dtype)
    if array.dtype != np.bool_:
        made[len(array) :] = np.nan
    made[: len(array)] = array
    return made
