"""Predicted run times: the job with the lowest expected cost to finish goes first, estimated from finished jobs.

Higher priority first. Within a priority, jobs are ranked by their value: the best rate of completions per second that
running the job gives (the Gittins index, see `History.value`), divided by the accelerators that it takes. The estimate
uses how long the user's jobs of that size ran, how long this job has run, and its declared `max_duration`. A job that
was expected to be short and is not falls back as its run time grows. A trial of a study is a part of one job: its value
is divided by the number of trials that the study has yet to run. The value doubles each time a job has waited for the
wait target of its class of work. A waiting job may preempt running jobs whose total value is below its own by the
policy's margin.
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

UNKNOWN = 1.0 / 3600.0  # completions per second of any job while there is no history
STEP = 25.0 / 2.0  # points of priority that double a job's value
LATEST = 4  # maximum doublings for a long wait: an overloaded cluster must not order jobs by age alone


class Band(NamedTuple):
    priority: float
    groups: tuple[Group, ...]  # history groups: user, size and name
    step: int  # age bin of the time it has run
    restart_cost: float  # seconds that its restart takes
    share: float  # accelerators, or workers where there are none; see `width`
    limit: float  # maximum run time in seconds; inf without a limit
    late: int  # how many times it has waited for its wait target
    parts: int  # of a trial: how many trials its study had yet to run, as a power of two, so that many have one band


class Predicted:
    name = "predicted"
    description = "higher priority first, then who is expected to be done at the least cost"
    values = True
    learns = True

    def standing(self, job: Job, rules: Rules, queue: QueueRules, now: float) -> Standing:
        priority, until = priority_now(job, queue, now)
        age, since = attained(job, now), runs_since(job)
        step = age_bin(age + 1e-6)
        restart_cost = 0.0
        if since is None:
            restart_cost = rules.preemption.restart_cost if job.ran else 0.0
        elif step + 1 < len(EDGES) - 1:
            until = min(until, since + EDGES[step + 1])
        late, later = _lateness(job, rules, int(priority), now)
        limit = job.spec.max_duration or inf
        parts = 1 << (job.study_left - 1).bit_length()
        band = Band(priority, groups_of(job.user, job.spec), step, restart_cost, width(job), limit, late, parts)
        until = min(until, later)
        return Standing(band, (job.number,), until if until > now else inf)

    def rank(self, band: Hashable, key: Key, history: History) -> Key:
        assert isinstance(band, Band)
        return (-band.priority, -_ends(band, history) / band.share, *key)

    def value(self, band: Hashable, history: History) -> float:
        assert isinstance(band, Band)
        return float(_ends(band, history) * 2.0 ** ((band.priority - 50.0) / STEP))


def _ends(band: Band, history: History) -> float:
    """Completions per second, of a trial those of its whole study, doubled for each wait target that has passed."""
    known = history.value(band.groups, band.step, band.restart_cost) if history.known else UNKNOWN
    if band.limit < inf:  # it ends by then in any case
        known = max(known, 1.0 / max(band.limit - EDGES[band.step] + band.restart_cost, 1.0))
    return float(known * 2.0**band.late / band.parts)


def _lateness(job: Job, rules: Rules, priority: int, now: float) -> tuple[int, float]:
    """How many times the job has waited for its wait target, and when that number changes."""
    target = rules.target(work_class(job.spec), priority)
    if not target:
        return 0, inf
    queued = job.phase == "queued"
    waited = job.waited + (now - job.since if queued else 0.0)
    late = min(int(waited / target + 1e-9), LATEST)
    return late, now + (late + 1) * target - waited if queued and late < LATEST else inf
