"""Turns decisions into events: the verdict on ended gangs, the scheduler's plan, and launches that failed."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from muster.control.observe import worker_ended
from muster.control.recovery import after_end, verdict
from muster.core.attempt_events import AttemptEnded, AttemptPlanned
from muster.core.entities.node_record import NodeCharged
from muster.core.event import SYSTEM, Event
from muster.core.job import Job
from muster.core.job_events import JobClaimed, JobStopped, JobStopping
from muster.core.plan import Plan
from muster.core.reasons import Reason, reason
from muster.core.repair import node_at_fault
from muster.core.state import State
from muster.cost.charge import charge
from muster.engines.base import GangLaunch
from muster.store.base import Entry
from muster.wire import WorkerExit

StepOf = Callable[[str, int], int | None]  # of a job and an attempt


def attempt_verdicts(
    state: State, job_ids: Sequence[str], now: float, step_of: StepOf = lambda job, attempt: None
) -> list[Event]:
    """For every named job whose workers have all ended: the verdict on the attempt, and the event that follows.

    Errors that turn out to be a node's are charged to it. `step_of`: the last step that an attempt reported.
    """
    events: list[Event] = []
    for job_id in job_ids:
        job = state.jobs.get(job_id)
        if job is None or not job.active or job.attempt is None:
            continue
        found = verdict(job.attempt)
        if found is None:
            if job.repair.error is not None and (node := node_at_fault(job)):
                events.append(_charged(job, node, now))
            continue
        outcome, cause = _why_stopped(job, *found)
        step = step_of(job.id, job.attempt.number) if outcome != "succeeded" else None
        refund = ""
        signature = cause.data.get("signature", "")
        if node := node_at_fault(job, step, succeeded=outcome == "succeeded", signature=signature):
            assert job.repair.error is not None
            events.append(_charged(job, node, now))
            refund = job.repair.error.charge
        number = job.attempt.number
        events.append(Event(AttemptEnded(outcome, cause, step), now, SYSTEM, job.project, job.id, number))
        if (cost := charge(state, job, outcome, cause, now)) is not None:
            events.append(Event(cost, now, SYSTEM, job.project, job.id, number))
        events.append(after_end(job, outcome, cause, now, step, refund))
    return events


def _charged(job: Job, node: str, now: float) -> Event:
    error = job.repair.error
    assert error is not None
    return Event(NodeCharged(node, error.attempt, error.code), now, SYSTEM, job.project, job.id, _number(job))


def _why_stopped(job: Job, outcome: str, cause: Reason) -> tuple[str, Reason]:
    """A gang that was stopped for a fault of its own has failed by it."""
    if outcome == "succeeded" or job.stop is None or job.stop.reason.category != "worker":
        return outcome, cause
    return "failed", job.stop.reason


def overdue(state: State, now: float) -> list[Event]:
    """Stops of the jobs without nodes that have reached their `max_duration`. For the others their launchers do it."""
    stopped = JobStopped(reason("max_duration"))
    due = [state.jobs[job_id] for job_id in state.seatless]
    due = [job for job in due if (until := _deadline(job)) is not None and until <= now]
    return [Event(stopped, now, SYSTEM, job.project, job.id) for job in due]


def next_deadline(state: State) -> float | None:
    """When `overdue` has something to do next."""
    found = [until for job_id in state.seatless if (until := _deadline(state.jobs[job_id])) is not None]
    return min(found, default=None)


def _deadline(job: Job) -> float | None:
    return None if job.spec.max_duration is None else job.since + job.spec.max_duration


def plan_events(state: State, plan: Plan, now: float) -> list[Event]:
    """Events for gangs that start, gangs that are preempted, and seats that are claimed. An empty plan gives none."""
    events: list[Event] = []
    for start in plan.starts:
        job = state.jobs[start.job]
        events.append(Event(AttemptPlanned(start.seats), now, SYSTEM, job.project, job.id, _number(job) + 1))
    for leave in plan.yields:
        job = state.jobs[leave.job]
        stopping = JobStopping(leave.reason, "queued", leave.grace)
        events.append(Event(stopping, now, SYSTEM, job.project, job.id, _number(job)))
    for claim in plan.claims:
        job = state.jobs[claim.job]
        events.append(Event(JobClaimed(claim.seats), now, SYSTEM, job.project, job.id, _number(job)))
    return events


def launch_failed(state: State, gang: GangLaunch, detail: str, now: float) -> Entry:
    """Ends all workers of a gang that the engine can't start."""
    job = state.jobs.get(gang.job)
    if job is None or not job.active or job.attempt is None or job.attempt.number != gang.attempt:
        return Entry()
    end = WorkerExit("failed", "launch_failed", detail, now)
    return Entry([worker_ended(job, i, end, now) for i, w in enumerate(job.attempt.workers) if w.state != "ended"])


def _number(job: Job) -> int:
    """The number of the current or the last attempt; 0 before the first."""
    return job.attempt.number if job.attempt is not None else 0
