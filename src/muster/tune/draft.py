"""A round of a study while it is decided: the decisions so far, the view as it is after them, and what is left then."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Final

from muster.core.entities.study import Trial
from muster.core.trial_map import TrialMap, map_of
from muster.tune.decisions import Decision, End, Facts, Finish, Leave, Promote, Start
from muster.tune.expected import Expected, Need
from muster.tune.left import Left, left, need_of_confirmation, need_of_running
from muster.tune.stopping.base import Stopping
from muster.tune.tables import Entry, Row, Tables
from muster.tune.view import StudyView

NOTHING: Final = Need(0.0, 0.0)
_COUNTED: Final = ("search", "enqueued", "replicate", "asked")  # origins of the trials that `trials` limits


class Draft:
    """`tables` have the rows of `entries` here, `measured` those of `muster.tune.expected`."""

    def __init__(self, view: StudyView, facts: Facts, stopping: Stopping, tables: Tables, measured: Tables) -> None:
        self.view, self.facts, self.decisions = view, facts, list[Decision]()
        self._stopping, self._tables, self._measured = stopping, tables, measured
        self._before: dict[int, Trial | None] = {}  # trials that are different, as they were given
        self._left: Left | None = None  # until a trial starts, goes on or leaves
        self._used = {"places": 0, "enqueued": 0}

    @property
    def free(self) -> int:
        """How many trials may start or go on. One that leaves because another took its place has none."""
        used = len(self.rows("live")) + len(self.rows("confirming")) - len(self.rows("replaced"))
        free = self.view.spec.parallel - used
        return free if self.facts.places is None else min(free, self.facts.places - self._used["places"])

    @property
    def limited(self) -> bool:
        """Whether money or time is."""
        return self.facts.limit is not None or self.facts.until is not None

    @property
    def enqueued(self) -> int:
        """How many points are tried next."""
        return self.facts.enqueued - self._used["enqueued"]

    def rows(self, name: str) -> Sequence[Row]:
        self._tables.follow(self.view)
        return self._tables.rows(name)

    def is_repeated(self, number: int) -> bool:
        """Whether another trial has taken its place."""
        again = self.rows("again")
        place = bisect_left(again, (number, -1))
        return place < len(again) and again[place][0] == number

    def losses(self) -> list[float]:
        """Of complete trials, by the first objective."""
        return [loss for loss, _ in self.rows("complete")]

    def close(self, closed: bool) -> None:
        if self.view.closed != closed:
            self.view = replace(self.view, closed=closed)

    def put(self, trial: Trial) -> None:
        """The trial as it is by now."""
        trials = self.view.trials
        if not isinstance(trials, TrialMap):
            trials = map_of(trials)
        known = trials.get(trial.number)
        if trial.live or (known is not None and known.live):
            self._left = None
        self._before.setdefault(trial.number, known)
        trials.put(trial.number, trial)
        self.view = replace(self.view, trials=trials, changes=self.view.changes + 1)

    def take_back(self) -> None:
        """Leaves the trials as they were given."""
        if isinstance(self.view.trials, TrialMap):
            for number, trial in sorted(self._before.items(), reverse=True):
                self.view.trials.put(number, trial)

    def do(self, decision: Decision) -> None:
        self.decisions.append(decision)
        match decision:
            case Leave():
                self.put(replace(self.view.trials[decision.number], phase="leaving", outcome=decision.outcome))
            case Promote():
                self.put(replace(self.view.trials[decision.number], phase="running"))
                self._used["places"] += 1
            case Start():
                self.put(self._begun(decision))
                self._used["places"] += decision.origin != "exploit"
                self._used["enqueued"] += decision.origin == "enqueued" and decision.replaces is None
            case End():
                self.put(replace(self.view.trials[decision.number], phase="ended", outcome="stopped"))
            case Finish():
                pass

    def expected(self) -> Expected:
        self._measured.follow(self.view)
        sign = self.view.spec.objective.sign
        return Expected(self._measured, sign, self.facts.trial_seconds, self.facts.trial_cost)

    def fits(self, trial: Trial | None, level: float | None = None) -> bool:
        """Whether the way of a trial to a level, or to its end, fits into what is left of money and time; None: a new
        trial. What the confirmation of the winners needs is left aside.

        The first trial always fits: what it is estimated to need is often far too much, and the limit itself ends it.
        """
        if not self.limited or all(one.outcome == "lost" for one in self.view.trials.values()):
            return True
        expected = self.expected()
        if self._left is None:
            self._left = self._remaining(need_of_confirmation(self.view.spec, expected))
        return self._left.fits(expected.whole() if trial is None else expected.segment(trial, level))

    def fits_to_confirm(self) -> bool:
        """Whether another run that confirms a winner fits."""
        return not self.limited or self._remaining(NOTHING).fits(self.expected().whole())

    def _remaining(self, reserved: Need) -> Left:
        expected, ran = self.expected(), self.facts.ran
        running = [self.view.trials[number] for name in ("live", "confirming") for _, number in self.rows(name)]
        needs = [need_of_running(one, self._stopping, expected, ran.get(one.number)) for one in running]
        return left(self.facts, reserved, needs)

    def _begun(self, start: Start) -> Trial:
        return Trial(
            self.view.id, start.number, dict(start.params or {}), origin=start.origin, by=start.by, of=start.of,
            replaces=start.replaces, seed=start.seed, bracket=start.bracket, note=start.note,
        )  # fmt: skip


def entries(sign: float) -> Callable[[Trial], Iterator[Entry]]:
    """The rows of a trial: `live` or `confirming` while it has a place, `running`, `replaced` while it leaves and
    another has its place, `paused`, `held` if it is that because the study was stopped, `lost`, `complete` by its loss,
    `counted` among those that `trials` limits, `again` by the number of the trial whose place it takes."""
    return lambda trial: _entries(trial, sign)


def is_counted(trial: Trial) -> bool:
    """Whether it is one of those that `trials` of the study file limits."""
    return trial.origin in _COUNTED and trial.replaces is None


def _entries(trial: Trial, sign: float) -> Iterator[Entry]:
    row = (0.0, trial.number)
    if trial.live:
        yield ("confirming" if trial.origin == "confirm" else "live", 0, 0.0), row
        if trial.phase == "running":
            yield ("running", 0, 0.0), row
        elif trial.outcome == "replaced":
            yield ("replaced", 0, 0.0), row
    elif trial.phase == "paused":
        yield ("paused", 0, 0.0), row
        if trial.held:
            yield ("held", 0, 0.0), row
    elif trial.outcome == "lost":
        yield ("lost", 0, 0.0), row
    elif trial.outcome == "complete" and trial.origin != "confirm" and trial.values is not None and not trial.violated:
        yield ("complete", 0, 0.0), (sign * trial.values[0], trial.number)
    if is_counted(trial):
        yield ("counted", 0, 0.0), row
    if trial.replaces is not None:
        yield ("again", 0, 0.0), (float(trial.replaces), trial.number)
