"""Random run times from the history of finished jobs: one for each job and each simulated future."""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from random import Random

from muster.core.history import History, groups_of
from muster.core.job import Job
from muster.sched.order import UNKNOWN

# (job, its run time so far in seconds, number of the future) → its total run time in seconds, at least what it ran.
Draw = Callable[[Job, float, int], float]


class Draws:
    """The same history gives the same futures. Over all futures, a job's run times cover its distribution evenly."""

    def __init__(self, history: History, samples: int) -> None:
        self._history, self._samples = history, samples
        self._shares: dict[int, list[float]] = {}

    def __call__(self, job: Job, age: float, sample: int) -> float:
        share = self._share(job.number)[sample]
        if self._history.known:
            total = self._history.quantile(groups_of(job.user, job.spec), share, age)
        else:
            total = _unknown(share, age)
        most = inf if job.spec.max_duration is None else job.spec.max_duration
        return max(min(total, most), age)

    def _share(self, number: int) -> list[float]:
        found = self._shares.get(number)
        if found is None:
            random = Random(f"0/{number}")
            order = list(range(self._samples))
            random.shuffle(order)
            found = self._shares[number] = [(place + random.random()) / self._samples for place in order]
        return found


def _unknown(share: float, age: float) -> float:
    """Without any history: half of the jobs that reach an age end before they double it."""
    return max(age, UNKNOWN / 2) / (1.0 - share)
