"""What the report of a study reads besides its view: the study itself, the jobs of its trials, and their curves."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from muster.core.entities.study import Study, Trial
from muster.core.reasons import Reason
from muster.tune.view import StudyView

Mark = Literal["promoted", "restarted", "continued"]  # of a later attempt
Importance = Callable[[StudyView], Mapping[str, float]]  # parameter → its share of what makes values differ


@dataclass(frozen=True, slots=True)
class TrialRun:
    """The job of a trial. `cost` and `seconds`: since those of the trial were noted, which is when it was paused."""

    waits: bool = False  # it is queued or starts
    pool: str = ""
    attempts: int | None = None  # None: not known
    cost: int = 0  # millionths
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class LearningCurve:
    """What a trial's run measured of the first objective, downsampled. `marks`: steps at which later attempts
    began (`marks_of`)."""

    points: Sequence[tuple[float, float]]  # step, value
    marks: Sequence[tuple[float, Mark]] = ()


@dataclass(frozen=True)
class StudyFacts:
    """`runs` may leave trials out: nothing is known of their jobs but what the trials say. `curves`: those of the
    trials that `curve_numbers` names, by number; a trial without one is drawn from the levels that it passed."""

    study: Study
    now: float
    wait: Reason | None = None
    currency: str = ""
    runs: Mapping[int, TrialRun] = field(default_factory=dict)
    curves: Mapping[int, LearningCurve] = field(default_factory=dict)

    def run(self, trial: Trial) -> TrialRun:
        return self.runs.get(trial.number, _NOTHING)

    def cost(self, trial: Trial) -> int:
        return trial.cost + self.run(trial).cost

    def seconds(self, trial: Trial) -> float:
        return trial.seconds + self.run(trial).seconds


def marks_of(trial: Trial, firsts: Sequence[float]) -> list[tuple[float, Mark]]:
    """`firsts`: the first step of each attempt. Each promotion begins an attempt, and so does each restart."""
    promoted, later = trial.starts - 1, firsts[1:]
    mark: Mark = "restarted" if not promoted else "promoted" if promoted >= len(later) else "continued"
    return [(step, mark) for step in later]


_NOTHING = TrialRun()
