"""Ends the jobs whose end follows from the end of others: jobs that need one that ended otherwise, and arrays."""

from __future__ import annotations

from muster.core.array import array_of
from muster.core.event import SYSTEM, Event
from muster.core.job import Job
from muster.core.job_events import JobEnd, JobFailed, JobStopped, JobSucceeded
from muster.core.reasons import reason
from muster.core.state import State


def settle(state: State, now: float) -> list[Event]:
    """One event for each job of `state.settled`. They may settle others: call it until there are none."""
    return [_event(state.jobs[name], now) for name in state.settled]


def _event(job: Job, now: float) -> Event:
    return Event(_end(job), now, SYSTEM, job.project, job.id, job.attempt.number if job.attempt is not None else 0)


def _end(job: Job) -> JobEnd:
    if job.is_array:
        return _end_of_array(job)
    assert job.reason is not None  # given by `core.needs`
    return JobStopped(job.reason)


def _end_of_array(job: Job) -> JobEnd:
    """An array fails with any of its tasks, and succeeds with all."""
    every, found = len(array_of(job).indexes), job.outcomes
    if found.keys() <= {"succeeded"}:
        return JobSucceeded(reason("completed", f"all {every} tasks succeeded"))
    told = ", ".join(f"{count} {phase}" for phase, count in sorted(found.items()))
    why = reason(
        "tasks_failed", f"of {every} tasks: {told}", f"Run those again: `muster resume {job.id}`.", tasks=found
    )
    return JobFailed(why) if found.get("failed") else JobStopped(why)
