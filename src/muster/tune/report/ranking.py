"""The order of trials from the best to the worst, which every part of the report uses."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

from muster.core.entities.study import Trial
from muster.tune.view import StudyView


@dataclass(frozen=True)
class Ranking:
    """`order`: trials with a value, the best first. The first `complete` of them ran to their end and break no
    constraint, by their loss; then come those up to `sound`, which stopped or run: first those that passed more
    levels, then by their loss; then those that break a constraint. If any is sound, the first is `StudyView.best`.

    Trials that repeat others with another seed, trials that were lost, and values that are no number have no rank.
    """

    order: list[Trial]
    complete: int
    sound: int

    @cached_property
    def ranks(self) -> dict[int, int]:
        return {trial.number: rank for rank, trial in enumerate(self.order, start=1)}

    @property
    def finished(self) -> list[Trial]:
        return self.order[: self.complete]

    def standing(self, trial: Trial) -> float | None:
        """The rank as a share of all: 0 of the best, below 1."""
        rank = self.ranks.get(trial.number)
        return None if rank is None else (rank - 1) / len(self.order)


def ranking(view: StudyView) -> Ranking:
    keyed: list[tuple[tuple[float, ...], Trial]] = []
    for trial in view.searched():
        loss = view.loss(trial)
        if loss is not None and not math.isnan(loss):
            keyed.append((_key(trial, loss), trial))
    keyed.sort(key=lambda one: one[0])
    kinds = [int(key[0]) for key, _ in keyed]
    complete, sound = (sum(kind <= most for kind in kinds) for most in (0, 1))
    return Ranking([trial for _, trial in keyed], complete, sound)


def _key(trial: Trial, loss: float) -> tuple[float, ...]:
    if trial.violated:
        return (2, loss, trial.number)
    if trial.outcome == "complete" and trial.phase == "ended":
        return (0, loss, trial.number)
    return (1, -len(trial.rungs), loss, trial.number)
