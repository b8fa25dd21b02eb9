"""What searchers and stopping rules see of a study: its file, and its trials so far. They never change it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from muster.core.entities.study import Study, Trial, Values
from muster.core.trial_map import TrialMap
from muster.tune.space import Params
from muster.tune.spec import StudySpec
from muster.tune.tried import Key, Tried


class Prior(NamedTuple):
    """A point that was tried elsewhere, with the values of the objectives."""

    params: Params
    values: Values


@dataclass(frozen=True)
class StudyView:
    """`trials` has every number from 0 on. Two views of one study with the same `changes` have the same trials.

    `closed`: no trial will be asked for any more, so that a rule has nothing to wait for. `checkpoints`: the step of
    the newest checkpoint of each trial that has one; None: it is not known which have.
    """

    id: str
    spec: StudySpec
    seed: int
    trials: Mapping[int, Trial] = field(default_factory=dict)
    prior: Sequence[Prior] = ()
    changes: int = 0
    closed: bool = False
    checkpoints: Mapping[int, int] | None = None
    outside: frozenset[int] = frozenset()  # trials that are no points of the space since it was changed

    def losses(self, values: Sequence[float]) -> tuple[float, ...]:
        """The values of the objectives, the better the smaller."""
        return tuple(one.sign * value for one, value in zip(self.spec.objectives, values, strict=True))

    def loss(self, trial: Trial) -> float | None:
        """Of the first objective: of a trial that has values, or of the last rung that it passed."""
        latest = trial.latest
        return None if latest is None else self.spec.objective.sign * latest[0]

    def searched(self) -> list[Trial]:
        """The trials that a search follows from: no repetitions with other seeds, none that the platform lost, and none
        outside of the space."""
        some = self.trials.values()
        return [
            one for one in some if one.origin != "confirm" and one.outcome != "lost" and one.number not in self.outside
        ]

    def complete(self) -> list[Trial]:
        """Searched trials with values that break no constraint, the best first."""
        found = [one for one in self.searched() if one.outcome == "complete" and not one.violated]
        return sorted(found, key=lambda one: (self.loss(one) or 0.0, one.number))

    def best(self) -> Trial | None:
        """The best complete trial; while there is none, the best of those that have a value."""
        if done := self.complete():
            return done[0]
        some = [one for one in self.searched() if one.latest is not None and not one.violated]
        return min(some, key=lambda one: (-len(one.rungs), self.loss(one) or 0.0, one.number), default=None)

    def times_tried(self) -> Mapping[Key, int]:
        """How often each point was tried or is being tried, without what the platform lost."""
        index = self.trials.indexes.setdefault("tried", Tried()) if isinstance(self.trials, TrialMap) else Tried()
        found: Mapping[Key, int] = index.times(self.trials, self.outside)
        return found


def view_of(
    spec: StudySpec,
    study: Study,
    trials: Mapping[int, Trial],
    changes: int,
    *,
    closed: bool = False,
    checkpoints: Mapping[int, int] | None = None,
) -> StudyView:
    """`spec`: the study's file, parsed once."""
    prior = [Prior(one["params"], tuple(one["values"])) for one in study.prior]
    outside = frozenset(study.outside)
    return StudyView(study.id, spec, study.seed, trials, prior, changes, closed, checkpoints, outside)
