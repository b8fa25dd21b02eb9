"""Which trials have passed each rung and which are paused there: what asynchronous halving decides from.

A rung is a level of a bracket. The best 1/eta of the trials that have passed it go on: a trial at once, if it is among
them when it passes, or later, if it comes to be among them while others pass. Trials that failed, or that the platform
lost, do not count: the next best takes their place.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Final

from muster.core.entities.study import Rung, Trial
from muster.tune.spec import StudySpec
from muster.tune.stopping.base import GO, Promotion, Verdict
from muster.tune.tables import Entry, Row, Tables, rank
from muster.tune.view import StudyView

DEAD: Final = ("failed", "infeasible", "diverged", "lost", "replaced")  # outcomes of trials that do not count
NOT_ASKED: Final = ("confirm", "exploit", "imported")  # origins of trials for which no bracket was chosen
DIVERGED: Final = Verdict("stop", "its objective is no number")


class Rungs:
    """`pauses`: a trial that is not among the best is paused; otherwise it is stopped."""

    def __init__(self, spec: StudySpec, eta: float, next_level: Callable[[Trial], float | None], pauses: bool) -> None:
        self._sign, self._eta, self._next_level = spec.objective.sign, eta, next_level
        self._pauses = pauses
        self.tables = Tables(self._entries)

    def verdict(self, view: StudyView, trial: Trial) -> Verdict:
        self.tables.follow(view)
        passed = trial.rungs[-1]
        if not math.isfinite(passed.values[0]):
            return DIVERGED
        row = (loss_at(passed, self._sign), trial.number)
        place, some, count = self._standing(trial.bracket, passed.level, row)
        if place < (some if self._pauses else max(some, 1)):
            return GO
        note = f"number {place + 1} of {count} at {passed.level:g}, of which {some} go on"
        return Verdict("pause" if self._pauses else "stop", note)

    def promote(self, view: StudyView) -> Promotion | None:
        """The best paused trial of the highest rung at which it is among the best by now."""
        self.tables.follow(view)
        for name, bracket, level in sorted(self.tables.keys("paused"), key=lambda key: (-key[2], key[1])):
            row = self.tables.rows(name, bracket, level)[0]
            place, some, count = self._standing(bracket, level, row)
            if place < some:
                return Promotion(row[1], f"number {place + 1} of {count} at {level:g} by now, of which {some} go on")
        return last_chance(view, self.tables)

    def _standing(self, bracket: int, level: float, row: Row) -> tuple[int, int, int]:
        """How many are before it at a rung, how many of the rung go on, and how many have passed it."""
        table = self.tables.rows("passed", bracket, level)
        return rank(table, row), quota(len(table), self._eta), len(table)

    def _entries(self, trial: Trial) -> Iterator[Entry]:
        return entries(trial, self._sign, self._next_level)


def loss_at(rung: Rung, sign: float) -> float:
    """Of the first objective; of what is no number, infinity, so that it has a place among the others."""
    loss = sign * rung.values[0]
    return loss if math.isfinite(loss) else math.inf


def quota(passed: int, eta: float) -> int:
    """How many of those that have passed a rung go on."""
    return int(passed / eta + 1e-9)


def last_chance(view: StudyView, tables: Tables) -> Promotion | None:
    """When nothing runs and nothing will be asked: the best trial of the highest rung, unless one has completed that
    got as far. Without it, a study of few trials would end with none that ran to its end."""
    if not view.closed or tables.rows("live") or not (waiting := tables.keys("paused")):
        return None
    highest = max(level for _, _, level in waiting)
    complete = tables.rows("complete")
    if complete and -complete[0][0] >= highest:
        return None
    _, number = min(tables.rows(*key)[0] for key in waiting if key[2] == highest)
    return Promotion(number, "the best so far, and no other trial will come")


def entries(trial: Trial, sign: float, next_level: Callable[[Trial], float | None]) -> Iterator[Entry]:
    """The rows of a trial in the tables `member`, `passed`, `live`, `running`, `leaving` and `paused` (by the last
    level that it passed), and `complete`, whose rows begin with how far trials got. One that is held counts as running:
    it goes on by itself."""
    number, bracket = trial.number, trial.bracket
    if trial.origin not in NOT_ASKED and trial.outcome != "lost":
        yield ("member", bracket, 0.0), (0.0, number)
    if trial.origin == "confirm" or trial.outcome in DEAD:
        return
    for rung in trial.rungs:
        yield ("passed", bracket, rung.level), (loss_at(rung, sign), number)
    last = trial.rungs[-1] if trial.rungs else None
    reached, loss = (last.level, loss_at(last, sign)) if last is not None else (0.0, 0.0)
    held = trial.held and trial.phase == "paused"
    if trial.live or held:
        yield ("live", 0, 0.0), (0.0, number)
        yield ("running" if held else trial.phase, bracket, reached), (loss, number)
    elif trial.phase == "paused" and trial.rungs:
        yield ("paused", bracket, reached), (loss, number)
    elif trial.outcome == "complete" and not trial.violated:
        yield ("complete", 0, 0.0), (-(reached if next_level(trial) is not None else math.inf), number)
