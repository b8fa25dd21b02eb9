"""Ends the jobs whose end follows from the end of others: jobs that need one that ended otherwise."""

from __future__ import annotations

from muster.core.event import SYSTEM, Event
from muster.core.job import Job
from muster.core.job_events import JobEnd, JobStopped
from muster.core.state import State


def settle(state: State, now: float) -> list[Event]:
    """One event for each job of `state.settled`. They may settle others: call it until there are none."""
    return [_event(state.jobs[name], now) for name in state.settled]


def _event(job: Job, now: float) -> Event:
    return Event(_end(job), now, SYSTEM, job.project, job.id, job.attempt.number if job.attempt is not None else 0)


def _end(job: Job) -> JobEnd:
    assert job.reason is not None  # given by `core.needs`
    return JobStopped(job.reason)
