"""Ends the jobs whose end follows from the end of others: jobs that need one that ended otherwise, and arrays."""

from __future__ import annotations

from muster.core.array import array_of
from muster.core.event import SYSTEM, Event
from muster.core.job import Job
from muster.core.job_events import JobEnd, JobFailed, JobStopped, JobSucceeded
from muster.core.needs import is_met, unmet
from muster.core.reasons import reason
from muster.core.state import State


def settle(state: State, now: float) -> list[Event]:
    """Ends each job of `state.settled`, and those behind them that can't start then, in this order.

    They may settle arrays: call it until there are none.
    """
    ends = {name: _end(state.jobs[name]) for name in state.settled}
    left = list(ends)
    while left:
        name = left.pop()
        for behind in state.dependents.get(name, ()):
            job = state.jobs[behind]
            if behind not in ends and not is_met(dict(job.needs)[name], ends[name].PHASE):
                ends[behind] = JobStopped(unmet(job, name, ends[name].PHASE))
                left.append(behind)
    return [_event(state.jobs[name], end, now) for name, end in ends.items()]


def _event(job: Job, end: JobEnd, now: float) -> Event:
    return Event(end, now, SYSTEM, job.project, job.id, job.attempt.number if job.attempt is not None else 0)


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
