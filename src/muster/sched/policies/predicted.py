"""The job first whose end is cheapest to bring about, as far as finished work tells.

Higher priority first; then by worth: the ends a second that running the job brings at best, for each accelerator that
it takes. What is known is how long its user's jobs of that size ran, and how long it has run itself, so a job that was
thought to be short and is not falls back as it grows older. A waiting job may take the place of running ones that
together are worth less than it by the policy's margin.
"""

from __future__ import annotations

from collections.abc import Hashable
from math import inf

from muster.core.history import EDGES, Group, History, age_bin, groups_of
from muster.core.job import Job
from muster.core.rules import QueueRules, Rules
from muster.sched.order import Key, Standing, attained, priority_now, runs_since, width

# priority, whose and what it is, its age, the restart that it owes, what a second of it takes
Band = tuple[float, tuple[Group, ...], int, float, float]
UNKNOWN = 1.0 / 3600.0  # ends a second, of any job, while nothing is known
STEP = 25.0 / 2.0  # points of priority that double a job's worth


class Predicted:
    name = "predicted"
    words = "higher priority first, then who is expected to be done at the least cost"
    values = True
    learns = True

    def standing(self, job: Job, rules: Rules, queue: QueueRules, now: float) -> Standing:
        priority, until = priority_now(job, queue, now)
        age, since = attained(job, now), runs_since(job)
        step = age_bin(age + 1e-6)
        owed = 0.0
        if since is None:
            owed = rules.preemption.restart_cost if job.ran else 0.0
        elif step + 1 < len(EDGES) - 1:
            until = min(until, since + EDGES[step + 1])
        band: Band = (priority, groups_of(job.user, job.spec), step, owed, width(job))
        return Standing(band, (job.number,), until if until > now else inf)

    def rank(self, band: Hashable, key: Key, history: History) -> Key:
        assert isinstance(band, tuple)
        priority, groups, step, owed, share = band
        ends = history.worth(groups, step, owed) if history.known else UNKNOWN
        return (-priority, -ends / share, *key)

    def worth(self, band: Hashable, history: History) -> float:
        assert isinstance(band, tuple)
        priority, groups, step, owed, _ = band
        # Before enough is known, priority alone decides who gives way.
        ends = history.worth(groups, step, owed) if history.known else UNKNOWN
        return float(ends * 2.0 ** ((priority - 50.0) / STEP))
