"""Needs: jobs that must be over, in a given way, before another job may start. The folds keep who waits for whom."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal

from muster.core.array import hold, unhold
from muster.core.reasons import Reason, reason

if TYPE_CHECKING:
    from muster.core.job import Job
    from muster.core.state_data import Changes, State

Outcome = Literal["succeeded", "ended", "failed"]  # how a needed job has to end; "ended": in any way
UNMET: Final = "needed_job_failed"


def is_met(wanted: str, phase: str) -> bool:
    """Whether a job that ended in this phase meets the need. One that was stopped did not succeed: it `failed`."""
    return wanted == "ended" or (wanted == "succeeded") == (phase == "succeeded")


def never_starts(job: Job) -> bool:
    """Whether the queued job can't start any more, because a job that it needs ended otherwise."""
    return bool(job.awaits) and job.reason is not None and job.reason.code == UNMET


def await_needs(state: State, job: Job) -> None:
    """Enters the job at each job that it waits for."""
    if never_starts(job):
        state.settled[job.id] = None
        return
    for needed in job.awaits:
        if needed == job.array:
            hold(state, job)
        else:
            state.dependents.setdefault(needed, {})[job.id] = None


def leave_needs(state: State, job: Job) -> None:
    """Inverse of `await_needs`."""
    state.settled.pop(job.id, None)
    for needed in job.awaits:
        if needed == job.array:
            unhold(state, job)
        waiting = state.dependents.get(needed)
        if waiting is not None:
            waiting.pop(job.id, None)
            if not waiting:
                del state.dependents[needed]


def meet_needs(state: State, ended: Job, time: float, changes: Changes) -> None:
    """A job has ended: those that waited for nothing else may start; those that can't any more are to be ended."""
    for name in state.dependents.pop(ended.id, ()):
        job = state.jobs[name]
        changes.jobs[name] = job
        wanted = dict(job.needs)[ended.id]
        if is_met(wanted, ended.phase):
            job.awaits = tuple([needed for needed in job.awaits if needed != ended.id])
            if not job.awaits:
                job.since = time  # from here on it waits for its turn
                state.journal.note("job", name)
            continue
        leave_needs(state, job)
        job.awaits, job.reason = (ended.id,), unmet(job, ended.id, ended.phase)
        state.settled[name] = None


def unmet(job: Job, needed: str, phase: str) -> Reason:
    """Why the job can't start any more: a job that it needs ended in this phase."""
    wanted = dict(job.needs)[needed]
    return reason(
        UNMET,
        f"{needed} {phase}, and this job starts only if it {ENDINGS[wanted]}",
        f"Resume both, the needed one first: `muster resume {needed} {job.id}`.",
        job=needed,
        phase=phase,
        wanted=wanted,
    )


ENDINGS: Final = {"succeeded": "succeeds", "ended": "ends", "failed": "fails"}
