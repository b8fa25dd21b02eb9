"""A rule of the study file: a trial is stopped when an expression holds, such as `value > 2 * best`."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Final

from muster.core.entities.study import Trial
from muster.core.units import InvalidValue
from muster.tune.expression import parse_expression
from muster.tune.plugin import Option
from muster.tune.spec import StudySpec
from muster.tune.stopping.base import GO, Promotion, Verdict
from muster.tune.stopping.levels import BY, Steady, by_of
from muster.tune.stopping.rungs import DIVERGED
from muster.tune.tables import Entry, Row, Tables, rank
from muster.tune.view import StudyView

# What the expression may read. A comparison with what is not there yet, such as a median of no others, does not hold.
NAMES: Final[Mapping[str, str]] = {
    "value": "the objective at this level",
    "previous": "the objective at the level before",
    "own_best": "the best objective of the trial so far",
    "best": "the best objective of any trial of the study so far",
    "median": "the median objective of the other trials that have passed this level",
    "rank": "1 for the best of the trials that have passed this level",
    "trials": "how many trials have passed this level, with this one",
    "report": "how many values of the objective the trial has reported; with `by: step`, at how many levels",
    "step": "the step of the last one",
    "since_best": "how many reports, or steps, have passed since the trial's best",
    "seconds": "how long the trial has run",
}


class Rule:
    NAME: ClassVar[str] = "rule"
    DESCRIPTION: ClassVar[str] = "stops a trial when an expression holds"
    OPTIONS: ClassVar[tuple[Option, ...]] = (
        Option("when", "text", None, "an expression over value, best, median, step, ...", choices=tuple(NAMES)),
        BY,
        Option("min", "integer", None, "the first level; 1 report, or `every` steps", least=1),
        Option("every", "integer", None, "levels are so far apart; 1 report, and to be given for steps", least=1),
    )
    ANY_ORDER: ClassVar[bool] = False

    def __init__(self, spec: StudySpec, options: Mapping[str, Any]) -> None:
        if options["every"] is None and options["by"] == "step":
            raise InvalidValue("Give `every`, the number of steps after which the rule is looked at again.")
        self.by = by_of(options)
        self._sign = spec.objective.sign
        self._when = parse_expression(options["when"] or "", frozenset(NAMES))
        self._levels = Steady(options["min"] or options["every"] or 1, options["every"] or 1)
        self._tables = Tables(self._entries)

    def next_level(self, trial: Trial) -> float | None:
        return None if trial.origin == "confirm" else self._levels.next(trial)

    def verdict(self, view: StudyView, trial: Trial) -> Verdict:
        if not math.isfinite(trial.rungs[-1].values[0]):
            return DIVERGED
        self._tables.follow(view)
        names = self._names(trial)
        if self._when.holds(names) is not True:
            return GO
        read = ", ".join(f"{name} {names[name]:g}" for name in NAMES if name in self._when.names)
        return Verdict("stop", f"{self._when.text}: {read}" if read else self._when.text)

    def promote(self, view: StudyView) -> Promotion | None:
        return None

    def bracket(self, view: StudyView, number: int) -> int:
        return 0

    def may_ask(self, view: StudyView) -> bool:
        return True

    def rung_of(self, trial: Trial) -> int:
        return 0

    def _names(self, trial: Trial) -> dict[str, float]:
        last = trial.rungs[-1]
        losses = [self._sign * one.values[0] for one in trial.rungs]
        own = min(range(len(losses)), key=losses.__getitem__)
        table = self._tables.rows("passed", 0, last.level)
        place = rank(table, (losses[-1], trial.number))
        at = (lambda rung: float(rung.step)) if self.by == "step" else (lambda rung: rung.level)
        found = {
            "value": last.values[0],
            "own_best": self._sign * losses[own],
            "best": self._sign * self._tables.rows("best")[0][0],
            "rank": place + 1.0,
            "trials": float(len(table)),
            "report": last.level if self.by == "report" else float(len(losses)),
            "step": float(last.step),
            "since_best": at(last) - at(trial.rungs[own]),
            "seconds": last.seconds,
        }
        if len(losses) > 1:
            found["previous"] = self._sign * losses[-2]
        if len(table) > 1:
            found["median"] = self._sign * _median_without(table, place)
        return found

    def _entries(self, trial: Trial) -> Iterator[Entry]:
        if trial.origin == "confirm" or trial.outcome == "lost" or not trial.rungs:
            return
        losses = [self._sign * one.values[0] for one in trial.rungs]
        for rung, loss in zip(trial.rungs, losses, strict=True):
            if math.isfinite(loss):
                yield ("passed", 0, rung.level), (loss, trial.number)
        if trial.values is not None:
            losses.append(self._sign * trial.values[0])
        yield ("best", 0, 0.0), (min((one for one in losses if math.isfinite(one)), default=math.inf), trial.number)


def _median_without(table: Any, place: int) -> float:
    """The median of a sorted table of at least two rows without the one at this place."""
    count = len(table) - 1

    def at(index: int) -> float:
        row: Row = table[index if index < place else index + 1]
        return row[0]

    return at(count // 2) if count % 2 else (at(count // 2 - 1) + at(count // 2)) / 2
