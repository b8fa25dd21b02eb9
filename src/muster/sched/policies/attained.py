"""Least attained service: jobs with little service so far go first, in a few levels; within a level in FIFO order.

What the other trials of its study had run before counts as service of a trial.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Hashable

from muster.core.history import History
from muster.core.job import Job
from muster.core.rules import QueueRules, Rules
from muster.sched.order import Key, Standing, attained, priority_now, runs_since, width

PAST = 1e-3  # seconds by which a job must exceed a level's limit to leave the level
EXACT = 1 + 1e-12  # makes up for rounding in the multiplication


class Attained:
    name = "attained"
    description = "higher priority first, then who has had the least service so far"
    values = True
    learns = False

    def standing(self, job: Job, rules: Rules, queue: QueueRules, now: float) -> Standing:
        priority, until = priority_now(job, queue, now)
        share = width(job)
        level = bisect_right(queue.levels, (attained(job, now) + job.study_ran - PAST) * share * EXACT)
        since = runs_since(job)
        if since is not None and level < len(queue.levels):
            ends = since + queue.levels[level] / share - job.study_ran
            until = min(until, max(ends + PAST, now + PAST))
        return Standing((priority, level), (job.number,), until)

    def rank(self, band: Hashable, key: Key, history: History) -> Key:
        assert isinstance(band, tuple)
        return (-band[0], band[1], *key)

    def value(self, band: Hashable, history: History) -> float:
        assert isinstance(band, tuple)
        priority, level = band
        return float(10.0 ** (priority * 0.3 - 3.0 * level))
