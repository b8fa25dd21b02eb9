"""Decisions as events: the verdict on gangs that ended, what the scheduler planned, and a launch that can't be made."""

from __future__ import annotations

from collections.abc import Sequence

from muster.control.observe import worker_ended
from muster.control.recovery import after_end, verdict
from muster.core.event import SYSTEM, Event
from muster.core.job import Job
from muster.core.plan import Plan
from muster.core.state import State
from muster.engines.base import GangLaunch
from muster.store.base import Entry
from muster.wire import WorkerExit


def judge(state: State, job_ids: Sequence[str], now: float) -> list[Event]:
    """The verdict on every named gang whose workers have all ended, and what follows from it."""
    events = []
    for job_id in job_ids:
        job = state.jobs.get(job_id)
        if job is None or not job.active or job.attempt is None:
            continue
        found = verdict(job.attempt)
        if found is not None:
            outcome, cause = found
            data = {"outcome": outcome, "reason": cause.to_dict()}
            events.append(Event("attempt.ended", now, SYSTEM, job.project, job.id, job.attempt.number, data))
            events.append(after_end(job, outcome, cause, now))
    return events


def plan_events(state: State, plan: Plan, now: float) -> list[Event]:
    """Gangs that start, gangs that make place, and the seats that are kept meanwhile; nothing for an empty plan."""
    events: list[Event] = []
    for start in plan.starts:
        job = state.jobs[start.job]
        seats = [seat.to_doc() for seat in start.seats]
        events.append(Event("attempt.planned", now, SYSTEM, job.project, job.id, _number(job) + 1, {"seats": seats}))
    for leave in plan.yields:
        job = state.jobs[leave.job]
        data = {"reason": leave.reason.to_dict(), "then": "queued", "grace": leave.grace}
        events.append(Event("job.stopping", now, SYSTEM, job.project, job.id, _number(job), data))
    for claim in plan.claims:
        job = state.jobs[claim.job]
        seats = [seat.to_doc() for seat in claim.seats]
        events.append(Event("job.claimed", now, SYSTEM, job.project, job.id, _number(job), {"seats": seats}))
    return events


def launch_failed(state: State, gang: GangLaunch, detail: str, now: float) -> Entry:
    """The end of a gang that the engine will not start."""
    job = state.jobs.get(gang.job)
    if job is None or not job.active or job.attempt is None or job.attempt.number != gang.attempt:
        return Entry()
    end = WorkerExit("failed", "launch_failed", detail, now)
    return Entry([worker_ended(job, i, end, now) for i, w in enumerate(job.attempt.workers) if w.state != "ended"])


def _number(job: Job) -> int:
    """Of the current attempt, or the last."""
    return job.attempt.number if job.attempt is not None else 0
