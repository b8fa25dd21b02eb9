"""The policy seam: in which order the jobs of a queue start, and who gives way to whom.

A policy puts each job into a band and gives it a key within it. Jobs of one band keep their order whatever happens, so
they stand in one sorted list; how the bands stand to each other may change with every job that ends, so it is asked for
when it is needed.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from math import inf
from typing import Protocol

from muster.core.history import History
from muster.core.job import Job
from muster.core.rules import QueueRules, Rules

Key = tuple[float, ...]  # the smaller goes first


@dataclass(frozen=True, slots=True)
class Standing:
    """Where a job stands: its band, its key within it, and when time alone will change either."""

    band: Hashable
    key: Key
    until: float = inf


class Policy(Protocol):
    """Deterministic; nobody starves under a bounded load."""

    name: str
    words: str  # the order in plain language: "first come, first served"
    values: bool  # whether jobs have a worth, so that one may give way to another
    learns: bool  # whether that worth changes with what has finished

    def standing(self, job: Job, rules: Rules, queue: QueueRules, now: float) -> Standing:
        """Of a queued or running job, from what it asks for and what it has had."""

    def rank(self, band: Hashable, key: Key, history: History) -> Key:
        """The best job of a band against those of other bands."""

    def worth(self, band: Hashable, history: History) -> float:
        """What a second of such a job is worth, for comparing one that waits with those that run: it may take the place
        of jobs that together are worth less. 0 where jobs have none."""


def priority_now(job: Job, queue: QueueRules, now: float) -> tuple[float, float]:
    """The job's priority with its queue's escalation, and when that changes it; inf for never."""
    rule = queue.escalation
    if rule is None or rule.to <= job.spec.priority:
        return float(job.spec.priority), inf
    at = job.submitted_at + rule.after
    return (float(rule.to), inf) if now >= at else (float(job.spec.priority), at)


def attained(job: Job, now: float) -> float:
    """Seconds that the job has run so far, over all its attempts."""
    attempt = job.attempt
    if attempt is not None and attempt.running_at is not None and attempt.ended_at is None:
        return job.ran + now - attempt.running_at
    return job.ran


def runs_since(job: Job) -> float | None:
    """When the job would have begun to run had it never stopped; None while it does not run."""
    attempt = job.attempt
    if attempt is None or attempt.running_at is None or attempt.ended_at is not None:
        return None
    return attempt.running_at - job.ran


def width(job: Job) -> float:
    """What one second of the job takes: accelerators, or workers where there are none."""
    return (job.ask.weight or 1.0) * job.nodes


def expected(job: Job, rules: Rules) -> float:
    """Seconds that the job is expected to run in all."""
    if rules.estimates == "declared" or job.expect is None:
        return job.spec.max_duration or job.expect or UNKNOWN
    return min(job.expect, job.spec.max_duration or inf)


def remaining(job: Job, rules: Rules) -> float:
    """Seconds that an attempt that starts now, or the one that runs, is expected to take from its start.

    Only what was saved is done: of a job that never said so, nothing is.
    """
    done = job.ran if job.checkpoint is not None else 0.0
    again = rules.preemption.restart_cost if job.ran else 0.0
    return max(expected(job, rules) - done, 1.0) + again


UNKNOWN = 3600.0  # seconds: of a job that nothing is known about
