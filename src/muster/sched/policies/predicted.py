"""The job first whose end is cheapest to bring about, as far as finished work tells.

Higher priority first; then by worth: the ends a second that running the job brings at best, for each accelerator that
it takes. What is known is how long its user's jobs of that size ran, how long it has run itself, and the `max_duration`
that it declares: a job that was thought to be short and is not falls back as it grows older. A job that has waited past
the target of its class of work counts for more, twice as much for each time that it has waited so long. A waiting job
may take the place of running ones that together are worth less than it by the policy's margin.
"""

from __future__ import annotations

from collections.abc import Hashable
from math import inf
from typing import NamedTuple

from muster.core.history import EDGES, Group, History, age_bin, groups_of
from muster.core.job import Job
from muster.core.rules import QueueRules, Rules
from muster.core.spec import work_class
from muster.sched.order import Key, Standing, attained, priority_now, runs_since, width

UNKNOWN = 1.0 / 3600.0  # ends a second, of any job, while nothing is known
STEP = 25.0 / 2.0  # points of priority that double a job's worth
LATEST = 4  # doublings for a long wait, at most: an overloaded cluster must not serve by age alone


class Band(NamedTuple):
    priority: float
    groups: tuple[Group, ...]  # whose and what it is
    step: int  # of its age
    owed: float  # seconds that its restart takes
    share: float  # what a second of it takes
    limit: float  # seconds that it runs at most; inf for any number
    late: int  # times that it has waited as long as it should at most


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
        late, later = _lateness(job, rules, int(priority), now)
        limit = job.spec.max_duration or inf
        band = Band(priority, groups_of(job.user, job.spec), step, owed, width(job), limit, late)
        until = min(until, later)
        return Standing(band, (job.number,), until if until > now else inf)

    def rank(self, band: Hashable, key: Key, history: History) -> Key:
        assert isinstance(band, Band)
        return (-band.priority, -_ends(band, history) / band.share, *key)

    def worth(self, band: Hashable, history: History) -> float:
        assert isinstance(band, Band)
        return float(_ends(band, history) * 2.0 ** ((band.priority - 50.0) / STEP))


def _ends(band: Band, history: History) -> float:
    """Ends a second, with what a long wait adds."""
    known = history.worth(band.groups, band.step, band.owed) if history.known else UNKNOWN
    if band.limit < inf:  # it is over by then, one way or another
        known = max(known, 1.0 / max(band.limit - EDGES[band.step] + band.owed, 1.0))
    return float(known * 2.0**band.late)


def _lateness(job: Job, rules: Rules, priority: int, now: float) -> tuple[int, float]:
    """How many times the job has waited as long as it should at most, and when that changes."""
    target = rules.target(work_class(job.spec), priority)
    if not target:
        return 0, inf
    queued = job.phase == "queued"
    waited = job.waited + (now - job.since if queued else 0.0)
    late = min(int(waited / target + 1e-9), LATEST)
    return late, now + (late + 1) * target - waited if queued and late < LATEST else inf
