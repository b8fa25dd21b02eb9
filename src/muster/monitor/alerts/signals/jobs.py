"""Signals of jobs, from the state and from what happened lately."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from muster.core.reasons import Reason
from muster.core.spec import work_class
from muster.monitor.alerts.rule import Reading, Subject
from muster.monitor.alerts.signals.base import View, subject_of

CURVES: Final = 600.0  # seconds for which a damaged curve counts
HOUR: Final = 3600.0
DAY: Final = 86_400.0
ENDED_LEAST: Final = 20  # jobs of a project that ended in a day, before its failure rate means something
CHECKPOINT_LEAST: Final = 600.0  # seconds: shorter intervals count as this


def not_finite(view: View) -> Iterator[Reading]:
    yield from _happened(view, "not_finite", CURVES)


def loss_jumps(view: View) -> Iterator[Reading]:
    yield from _happened(view, "loss", CURVES)


def norm_jumps(view: View) -> Iterator[Reading]:
    yield from _happened(view, "norm", CURVES)


def restarts(view: View) -> Iterator[Reading]:
    """Of jobs that run or wait; one that ended needs nobody."""
    yield from _happened(view, "restart", HOUR, queued=True)


def hangs(view: View) -> Iterator[Reading]:
    yield from _happened(view, "hang", HOUR, queued=True)


def checkpoint_age(view: View) -> Iterator[Reading]:
    """Time since the last checkpoint of this attempt, or since its start, in intervals that the job file asks for."""
    for job, subject in view.running():
        every, attempt = job.spec.checkpoint.every, job.attempt
        if not isinstance(every, int | float) or attempt is None or attempt.running_at is None:
            continue
        mark = job.checkpoint
        last = max(attempt.running_at, mark.time if mark is not None else 0.0)
        step = mark.step if mark is not None else None
        yield Reading(subject, (view.now - last) / max(every, CHECKPOINT_LEAST), {"step": step, "every": every})


def queue_wait(view: View) -> Iterator[Reading]:
    for job, subject in view.queued():
        yield Reading(subject, view.now - job.since, _why(job.reason))


def target_wait(view: View) -> Iterator[Reading]:
    """The wait so far in multiples of the target for its class of work and priority."""
    for job, subject in view.queued():
        target = view.state.rules.target(work_class(job.spec), job.spec.priority)
        if target > 0:
            yield Reading(subject, (view.now - job.since) / target, {"target": target, **_why(job.reason)})


def failure_rate(view: View) -> Iterator[Reading]:
    since = view.now - DAY
    for project in view.state.projects:
        failed = view.recent.count("failed", project, since)
        ended = failed + view.recent.count("succeeded", project, since)
        if ended >= ENDED_LEAST:
            last = view.recent.text("failed", project)
            facts = {"failed": failed, "ended": ended, "last": last}
            yield Reading(Subject("project", project, project=project), failed / ended, facts)


def _happened(view: View, what: str, seconds: float, queued: bool = False) -> Iterator[Reading]:
    """How often it happened to a job. A job to which it did not happen is absent: there are many of them."""
    phases = {"running", "queued", "starting"} if queued else {"running"}
    for job_id in view.recent.names(what):
        job = view.state.jobs.get(job_id)
        if job is not None and job.phase in phases and job.stop is None:
            count = view.recent.count(what, job_id, view.now - seconds)
            if count:
                yield Reading(subject_of(job), count, {"last": view.recent.text(what, job_id)})


def _why(waits: Reason | None) -> dict[str, str]:
    return {"why": waits.message if waits is not None else "see `muster why`"}
