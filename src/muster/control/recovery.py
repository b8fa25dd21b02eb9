"""Decides what happens to a job whose attempt has ended: it ends too, or restarts. Pure functions.

Every restart has a reason and is charged to a budget. `worker` and `error` are charged to `retry.max_restarts`. A lost
node and a preemption are not the job's fault and have their own budgets, so a bad week of the cluster can't fail a job.
Two rules end a job before its budget is spent: the same error at the same step twice, and three attempts in a row
without progress.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from muster.core.event import SYSTEM, Event
from muster.core.job import Attempt, Job, StopOrder
from muster.core.job_events import JOB_ENDS, JobRequeued
from muster.core.payload import Payload
from muster.core.reasons import CONSEQUENCE, REASONS, Reason, reason
from muster.core.repair import STALLED_MAX, after_attempt, error_of
from muster.core.signature import exception_line, signature
from muster.wire import WorkerExit

NODE_RESTARTS = 20
PREEMPTED_RESTARTS = 1_000
BACKOFF_MAX = 600.0  # seconds
_ASKS = ("max_duration", "no_good_checkpoint", "start_missing")  # somebody has to say how it goes on


def verdict(attempt: Attempt) -> tuple[str, Reason] | None:
    """The outcome of the gang and its root cause; None while a worker still runs."""
    exits = [worker.exit for worker in attempt.workers if worker.exit is not None]
    if len(exits) < len(attempt.workers):
        return None
    bad = [(i, WorkerExit.from_dict(e)) for i, e in enumerate(exits) if e["outcome"] != "succeeded"]
    if not bad:
        return "succeeded", reason("completed")
    # The first failure is the cause, however late it is found. Workers that were told to exit are its consequence, and
    # one that was told why knows more than one that was told only that another worker had ended.
    worker, first = min(bad, key=lambda item: (_distance(item[1]), item[1].time))
    if first.reason == "node_lost" and first.ranks:  # its launcher lives: perhaps it was told to leave for another node
        silent = [item for item in bad if item[1].reason in ("node_lost", "launcher_lost") and not item[1].ranks]
        worker, first = min(silent, key=lambda item: item[1].time, default=(worker, first))
    node = attempt.workers[worker].node
    where = f"rank {first.rank} on {node}" if first.rank is not None else f"worker {worker} on {node}"
    code = first.reason if first.reason in REASONS else "user_error"
    message = _describe(code, where, node, first)
    data: dict[str, Any] = {"detail": first.detail, "rank": first.rank, "node": node, "exit_code": first.exit_code}
    if found := signature(first.detail) if first.outcome == "failed" else None:
        data |= {"signature": found.digest, "error": found.error}
    return first.outcome, reason(code, message, **data, signal=first.signal)


def _distance(end: WorkerExit) -> int:
    """How far an exit is from the cause of the gang's end: 0 for a failure of its own, 2 for one that says nothing."""
    return 2 if end.reason == CONSEQUENCE else int(end.outcome == "stopped")


def after_end(job: Job, outcome: str, cause: Reason, now: float, step: int | None = None, refund: str = "") -> Event:
    """The one event that follows the end of an attempt: the job ends, or is queued again.

    `step`: the last that the attempt reported. `refund`: the budget that gets a restart back, see `NodeCharged`.
    """
    if outcome == "succeeded":  # even if it was ordered to stop and finished within its grace
        return _end(job, "succeeded", cause, now)
    if job.stop is not None and job.stop.then == "stopped":
        return _end(job, "stopped", job.stop.reason, now)
    if job.stop is not None and job.stop.reason.category != "worker":
        return _again(job, _checked(job, job.stop, now), "preempted", now, now)
    if cause.code in _ASKS or (cause.code == "time_limit" and not _saved(job)):
        return _end(job, "stopped", cause, now)  # without a checkpoint it would start from the beginning every time
    if cause.code == "spot_notice":  # its worker had ended before the server was told that it leaves
        grace = job.spec.stop_grace
        cause = _checked(job, StopOrder(cause, "queued", grace, now - grace), now)
    return _restart_or_fail(job, cause, now, step, refund)


def _checked(job: Job, stop: StopOrder, now: float) -> Reason:
    """The reason for the stop, extended by whether the gang saved a checkpoint after it was asked to."""
    mark, attempt = job.checkpoint, job.attempt
    if stop.reason.code == "resizing" and attempt is not None and attempt.running_at is None:
        return replace(stop.reason, data={**stop.reason.data, "saved": False})  # it never ran: there is nothing to save
    saved = mark is not None and attempt is not None and mark.attempt == attempt.number and mark.time >= stop.at
    if mark is None:
        told = "it has reported no checkpoint and begins again"
        if times := job.charges.get("preempted", 0):
            told += f", {times + 1} times by now: save sooner, see `checkpoint.every`"
    elif saved:
        told = f"it saved step {mark.step} before it left"
    else:
        told = f"it did not save in the {now - stop.at:.0f} s before it left and goes on from step {mark.step}"
    return replace(stop.reason, message=f"{stop.reason.message}; {told}", data={**stop.reason.data, "saved": saved})


def _saved(job: Job) -> bool:
    """Whether this attempt has committed a checkpoint."""
    return job.checkpoint is not None and job.attempt is not None and job.checkpoint.attempt == job.attempt.number


def _restart_or_fail(job: Job, cause: Reason, now: float, step: int | None, refund: str) -> Event:
    category, retry = cause.category, job.spec.retry
    if category not in retry.on:
        return _end(job, "failed", cause, now)
    if found := _same_error(job, cause, step) or _no_progress(job, cause, step):
        return _end(job, "failed", found, now)
    spent, limit = _budget(job, category, refund)
    if spent >= limit:
        message = f"{cause.message}; {spent} of {limit} restarts are spent"
        if limit == 0:
            return _end(job, "failed", cause, now)
        return _end(job, "failed", reason("restarts_spent", message, last=cause.to_dict()), now)
    # Where steps were gained, and for the first lost node, nothing is waited for: the gang goes on with what is left.
    further = category in ("worker", "node") and _went_further(job, step)
    at_once = category == "preempted" or further or (category == "node" and spent == 0)
    wait = 0.0 if at_once else min(retry.backoff * 2**spent, BACKOFF_MAX)
    return _again(job, cause, category, now, now + wait)


def _went_further(job: Job, step: int | None) -> bool:
    """Whether the attempt went beyond every step that was reached before."""
    return step is not None and (job.repair.step is None or step > job.repair.step)


def _same_error(job: Job, cause: Reason, step: int | None) -> Reason | None:
    """The end of a job whose last two errors are the same at the same step, or both before any step."""
    before, error = job.repair.error, error_of(job, step, cause)
    if before is None or error is None or (before.signature, before.step) != (error.signature, error.step):
        return None
    place = f"at step {step}" if step is not None else "before its first step"
    nodes = before.node if before.node == error.node else f"{before.node} and {error.node}"
    message = f"attempts {before.attempt} and {error.attempt} ended with the same error {place} on {nodes}"
    data = {**cause.data, "attempts": [before.attempt, error.attempt], "step": step, "cause": cause.code}
    return reason("same_error_twice", f"{message}: {cause.message}", **data)


def _no_progress(job: Job, cause: Reason, step: int | None) -> Reason | None:
    """The end of a job whose last attempts went beyond neither a step nor a checkpoint that was reached before."""
    found = after_attempt(job, step, cause)
    if len(found.stalled) < STALLED_MAX:
        return None
    reached = found.step if found.step is not None else found.saved
    numbers = f"{', '.join(map(str, found.stalled[:-1]))} and {found.stalled[-1]}"
    message = f"attempts {numbers} did not go beyond step {reached}, reached before; the last: {cause.message}"
    data: dict[str, Any] = {"attempts": list(found.stalled), "step": reached, "last": cause.to_dict()}
    return reason("no_progress", message, **data)


def _budget(job: Job, category: str, refund: str) -> tuple[int, int]:
    charges = {**job.charges, refund: job.charges.get(refund, 0) - 1}
    if category == "node":
        return charges.get("node", 0), NODE_RESTARTS
    if category == "preempted":
        return charges.get("preempted", 0), PREEMPTED_RESTARTS
    return max(0, charges.get("worker", 0) + charges.get("error", 0)), job.spec.retry.max_restarts


def _describe(code: str, where: str, node: str, end: WorkerExit) -> str:
    if code == "killed_by_signal":
        told = end.detail.strip().splitlines()
        return f"{told[0]} on {node}" if told else f"{where} was killed by signal {end.signal}"
    if code == "user_error":
        last = end.detail.strip().splitlines()[-1] if "Traceback" in end.detail else ""
        said = exception_line(end.detail) or last
        return f"{where} ended with exit code {end.exit_code}" + (f": {said[:200]}" if said else "")
    summary = REASONS[code].summary
    if code == "device_out_of_memory":
        return f"{summary} ({node}): {end.detail.strip().splitlines()[0]}"
    return f"{summary} ({where})" + (f": {end.detail.strip()[:300]}" if end.detail.strip() else "")


def _end(job: Job, phase: str, cause: Reason, now: float) -> Event:
    return _event(JOB_ENDS[phase](cause), job, now)


def _again(job: Job, cause: Reason, charge: str, now: float, not_before: float) -> Event:
    return _event(JobRequeued(cause, charge, not_before), job, now)


def _event(data: Payload, job: Job, now: float) -> Event:
    return Event(data, now, SYSTEM, job.project, job.id, job.attempt.number if job.attempt else 0)
