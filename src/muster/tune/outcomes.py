"""How a trial ended, from the end of its job. Failures of the platform are told from those of its parameters."""

from __future__ import annotations

from typing import Final

from muster.core.entities.study import Trial, TrialOutcome
from muster.core.job import Job
from muster.core.reasons import REASONS, Reason
from muster.tune.observe import FinalValues

# Ends after which the values that it has reported are its result.
_TIME_OVER: Final = frozenset({"max_duration", "job_budget_spent"})
_MEMORY: Final = frozenset({"out_of_memory", "device_out_of_memory", "host_out_of_memory"})
_PLATFORM: Final = frozenset({
    "launch_failed", "engine_refused", "image_unavailable", "pod_refused", "bad_environment", "secret_missing",
    "not_isolated", "workdir_missing", "no_good_checkpoint",
})  # fmt: skip


def outcome_of(trial: Trial, job: Job, found: FinalValues) -> tuple[TrialOutcome, str]:
    """The outcome of a trial whose job is over, and why."""
    cause = job.reason
    message = cause.message if cause is not None else ""
    if job.phase == "succeeded":
        return _completed(found)
    if trial.phase == "leaving" and job.phase == "stopped":
        return trial.outcome or "stopped", trial.note
    code = _root(cause)
    if code in _TIME_OVER and found.values is not None:
        return "complete", message
    if code in _MEMORY:
        return "infeasible", message
    if code in _PLATFORM or _category(code) in ("node", "preempted"):
        return "lost", message
    if job.phase == "stopped":
        return "stopped", message
    return ("diverged" if found.diverged else "failed"), message


def _completed(found: FinalValues) -> tuple[TrialOutcome, str]:
    if found.diverged:
        return "diverged", "its objective is no finite number"
    if found.missing:
        return "failed", f"it never reported {' and '.join(found.missing)}"
    return "complete", ""


def _root(cause: Reason | None) -> str:
    """The code of the failure that used up the restarts, or was repeated."""
    if cause is None:
        return ""
    last = cause.data.get("last")
    if isinstance(last, dict) and isinstance(last.get("code"), str):
        return str(last["code"])
    inner = cause.data.get("cause")
    return inner if cause.code == "same_error_twice" and isinstance(inner, str) else cause.code


def _category(code: str) -> str:
    kind = REASONS.get(code)
    return kind.category if kind is not None else ""
