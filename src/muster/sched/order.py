"""The policy interface: in which order the jobs of a queue start, and which jobs may preempt which.

A policy puts each job into a band and gives it a key within the band. The order within a band never changes, so its
jobs are kept in one sorted list. The order between bands may change with every job that ends, so it is computed when
it is needed.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from math import inf
from typing import Protocol

from muster.core.history import History
from muster.core.job import Job
from muster.core.rules import QueueRules, Rules

Key = tuple[float, ...]  # the smallest goes first


@dataclass(slots=True)  # not frozen: several are made for each job
class Standing:
    """A job's position: its band, its key within the band, and when time alone will change either of them."""

    band: Hashable
    key: Key
    until: float = inf


class Policy(Protocol):
    """An order of jobs. It must be deterministic, and no job may starve under a bounded load."""

    name: str
    description: str  # the order in plain language: "first come, first served"
    values: bool  # whether jobs have a value (`value`), so that one may be preempted for another
    learns: bool  # whether that value changes with the history of finished jobs

    def standing(self, job: Job, rules: Rules, queue: QueueRules, now: float) -> Standing:
        """The position of a queued or running job, from its request and the service it has had."""

    def rank(self, band: Hashable, key: Key, history: History) -> Key:
        """The key that compares a job of this band with jobs of other bands."""

    def value(self, band: Hashable, history: History) -> float:
        """The value of one second of such a job, to compare a waiting job with running ones. A waiting job may preempt
        jobs with a lower total value. 0 where the policy gives jobs no value."""


def priority_now(job: Job, queue: QueueRules, now: float) -> tuple[float, float]:
    """The job's priority including its queue's escalation, and when escalation will change it; inf for never."""
    rule = queue.escalation
    if rule is None or rule.to <= job.priority:
        return float(job.priority), inf
    at = job.submitted_at + rule.after
    return (float(rule.to), inf) if now >= at else (float(job.priority), at)


def attained(job: Job, now: float) -> float:
    """Seconds that the job has run so far, over all its attempts."""
    attempt = job.attempt
    if attempt is not None and attempt.running_at is not None and attempt.ended_at is None:
        return job.ran + now - attempt.running_at
    return job.ran


def runs_since(job: Job) -> float | None:
    """When the job would have started to run if it had never been interrupted; None while it does not run."""
    attempt = job.attempt
    if attempt is None or attempt.running_at is None or attempt.ended_at is not None:
        return None
    return attempt.running_at - job.ran


def width(job: Job) -> float:
    """The resources that the job holds: accelerators, or workers where it has none."""
    return (job.ask.weight or 1.0) * job.nodes


def expected(job: Job, rules: Rules) -> float:
    """The expected total run time in seconds."""
    if rules.estimates == "declared" or job.expect is None:
        return job.spec.max_duration or job.expect or UNKNOWN
    return min(job.expect, job.spec.max_duration or inf)


def remaining(job: Job, rules: Rules) -> float:
    """Expected seconds from start to end of the running attempt, or of one that starts now.

    Only saved work counts as done. A job that never reported a checkpoint has nothing done.
    """
    done = job.ran if job.has_saved else 0.0
    again = rules.preemption.restart_cost if job.ran else 0.0
    return max(expected(job, rules) - done, 1.0) + again


UNKNOWN = 3600.0  # expected run time in seconds of a job without any estimate
