"""What the ends of a job's attempts have shown so far: how far it came, attempts without progress, its last error.

`AttemptEnded` folds it, and `control.recovery` decides by the same functions before that event is written.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from muster.core.reasons import Reason
from muster.core.seat import is_slot

if TYPE_CHECKING:
    from muster.core.job import Job

STALLED_MAX: Final = 3  # attempts in a row without progress that end a job


@dataclass(frozen=True, slots=True)
class AttemptError:
    """The error that ended an attempt, with what later attempts are compared by."""

    attempt: int
    node: str
    signature: str  # see `core.signature`
    step: int | None  # the last step that the attempt reported
    charge: str  # the budget that its restart was charged to
    code: str  # its reason


@dataclass(frozen=True, slots=True)
class Repair:
    step: int | None = None  # the furthest step that an attempt reported
    saved: int | None = None  # the furthest checkpoint
    stalled: tuple[int, ...] = ()  # the last attempts, if they went beyond neither
    error: AttemptError | None = None  # of the last attempt with one, until an attempt goes beyond its step

    def without_checkpoints_after(self, step: int) -> Repair:
        """The checkpoints after this step are lost: saving them again is progress."""
        return replace(self, saved=step) if self.saved is not None and self.saved > step else self

    def to_doc(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_doc(cls, doc: dict[str, Any] | None) -> Repair:
        if not doc:
            return NOTHING
        error = doc["error"]
        return cls(doc["step"], doc["saved"], tuple(doc["stalled"]), AttemptError(**error) if error else None)


NOTHING: Final = Repair()


def after_attempt(job: Job, step: int | None, cause: Reason) -> Repair:
    """The record after the current attempt, which ends for this cause and reported steps up to `step`."""
    attempt, before = job.attempt, job.repair
    assert attempt is not None
    saved = job.checkpoint.step if job.checkpoint is not None and job.has_saved else None
    told = before.step is not None or before.saved is not None  # programs that report nothing are not judged
    stalled = before.stalled
    if _beyond(step, before.step) or _beyond(saved, before.saved):
        stalled = ()
    elif told and attempt.running_at is not None and job.stop is None and cause.category != "preempted":
        stalled = (*stalled, attempt.number)
    error = before.error if before.error is None or not _passed(job, before.error, step) else None
    if found := error_of(job, step, cause):
        error = found
    step, saved = _furthest(step, before.step), _furthest(saved, before.saved)
    if (step, saved, stalled) == (before.step, before.saved, before.stalled) and error is before.error:
        return before  # mostly so: a job that ends well, or a program that reports nothing
    return Repair(step, saved, stalled, error)


def error_of(job: Job, step: int | None, cause: Reason) -> AttemptError | None:
    """The error of the current attempt, if its traceback can be compared with others."""
    signature = cause.data.get("signature")
    if not signature or job.attempt is None or job.stop is not None:
        return None
    return AttemptError(
        job.attempt.number, str(cause.data.get("node", "")), signature, step, cause.category, cause.code
    )


def node_at_fault(job: Job, step: int | None = None, *, succeeded: bool = False, signature: str = "") -> str | None:
    """The node of the last error, if the current attempt went beyond that error's step without the node.

    `signature`: of the error that ends the current attempt. An error that also happens elsewhere is not the node's.
    """
    error, attempt = job.repair.error, job.attempt
    if error is None or attempt is None or error.attempt >= attempt.number or signature == error.signature:
        return None
    if not error.node or is_slot(error.node) or error.node in {worker.node for worker in attempt.workers}:
        return None
    return error.node if succeeded or _passed(job, error, step) else None


def _passed(job: Job, error: AttemptError, step: int | None) -> bool:
    """Whether the current attempt went beyond the step of an earlier error."""
    mark, attempt = job.checkpoint, job.attempt
    own = mark.step if mark is not None and attempt is not None and mark.attempt == attempt.number else None
    return _beyond(step, error.step) or _beyond(own, error.step)


def _beyond(found: int | None, before: int | None) -> bool:
    return found is not None and (before is None or found > before)


def _furthest(one: int | None, other: int | None) -> int | None:
    return other if one is None else one if other is None else max(one, other)
