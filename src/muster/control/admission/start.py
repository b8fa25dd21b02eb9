"""Finds the checkpoint of another run that a job starts from, and refuses a run that it may not use."""

from __future__ import annotations

from muster.control.admission.base import Context
from muster.control.admission.named import find_named
from muster.core.array import array_of
from muster.core.job import Job
from muster.core.reasons import Reason, reason
from muster.core.spec import JobSpec
from muster.core.start import StartPoint, point_at, split_start


def check(spec: JobSpec, context: Context) -> Reason | None:
    found = find_start(spec, context)
    return found if isinstance(found, Reason) else None


def find_start(spec: JobSpec, context: Context) -> StartPoint | Reason | None:
    """What the job starts from, or why it can't. Whether the files are there is seen where the job runs."""
    if spec.start_from is None:
        return None
    written, step = split_start(spec.start_from)
    found = find_named(written, spec.project, context, context.may_read)
    if len(found) != 1 or (isinstance(found[0], Job) and context.purged(found[0].id)):
        return _unknown(spec, written, [_id(job) for job in found])
    source = found[0]
    if not _is_needed(source, spec, context):
        if isinstance(source, str):
            return _nothing_yet(source, written)
        if (against := _against(source, step, written)) is not None:
            return against
    if isinstance(source, str):  # the same call submits it, with the same trust
        return StartPoint(source, step, spec.project, context.trusted)
    return point_at(source, step)


def _is_needed(source: Job | str, spec: JobSpec, context: Context) -> bool:
    """Whether the job waits for the end of its source, which may save until then."""
    if isinstance(source, Job) and (source.id not in context.state.jobs or source.is_array):
        return False
    needed = (find_named(name, spec.project, context) for name in spec.needs)
    return any(len(found) == 1 and _id(found[0]) == _id(source) for found in needed)


def _id(job: Job | str) -> str:
    return job if isinstance(job, str) else job.id


def _against(source: Job, step: int | None, written: str) -> Reason | None:
    if source.is_array:
        message = f"{source.id} is an array, whose tasks have the checkpoints"
        hint = f"Name a task, such as `start_from: {source.id}[{array_of(source).indexes[0]}]`."
        return reason("unknown_start", message, hint, run=source.id)
    mark = source.checkpoint
    if mark is None:
        return _nothing_yet(source.id, written)
    if step is not None and step > mark.step:
        message = f"{source.id} has no checkpoint of step {step}: its newest is that of step {mark.step}"
        return reason("unknown_start", message, run=source.id, step=step, newest=mark.step)
    return None


def _nothing_yet(source: str, written: str) -> Reason:
    message = f"{source} has reported no checkpoint"
    hint = f"Wait until it has saved one, or let this job wait for its end: `needs: [{written}]`."
    return reason("unknown_start", message, hint, run=source)


def _unknown(spec: JobSpec, written: str, several: list[str]) -> Reason:
    if len(several) > 1:
        message = f"it starts from {written!r}, which is the name of several jobs: {', '.join(several[:5])}"
        return reason("unknown_start", message, f"Give the id of one: `start_from: {several[0]}`.", run=written)
    # The same for a run of a project that the caller may not read: whether it exists is not for everybody to know.
    message = f"it starts from {written!r}, and project {spec.project!r} has no such run"
    hint = "Give a run of the project by name or id, or the id of one in another project that you may read."
    return reason("unknown_start", message, hint, run=written, project=spec.project)
