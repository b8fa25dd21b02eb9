"""Finds the jobs that a submitted job needs: names become ids when the job is accepted, and stay so."""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heappop, heappush
from typing import Final

from muster.api.words import FINAL
from muster.control.admission import Context
from muster.control.admission.named import find_named
from muster.core.errors import Unavailable
from muster.core.job import Job
from muster.core.needs import ENDINGS, is_met
from muster.core.reasons import Reason, reason
from muster.core.spec import JobSpec

_LISTED: Final = 5  # jobs of an ambiguous name that a message lists


def find_needs(spec: JobSpec, context: Context) -> tuple[dict[str, str], list[Reason]]:
    """The ids of the needed jobs, with how each has to end, and the reasons against the job."""
    found, against = dict[str, str](), list[Reason]()
    for written, wanted in spec.needs.items():
        job = _named(written, spec.project, context)
        if isinstance(job, Reason):
            against.append(job)
        elif isinstance(job, str):
            found[job] = wanted
        elif (unmet := _unmet(job, wanted, context)) is not None:
            against.append(unmet)
        else:
            found[job.id] = wanted
    return found, against


def check_needs(job: Job, context: Context) -> list[Reason]:
    """The reasons against a resumed job: what it needs is looked at again, by the ids that it has."""
    known = ((context.job(needed), wanted) for needed, wanted in job.needs)
    return [unmet for needed, wanted in known if needed and (unmet := _unmet(needed, wanted, context)) is not None]


def in_order(specs: Sequence[JobSpec]) -> tuple[list[int], list[int]]:
    """Positions of jobs that are submitted together, each after those that it needs; and those that need each other in
    a circle, or one that does."""
    by_name: dict[tuple[str, str], list[int]] = {}
    for i, spec in enumerate(specs):
        by_name.setdefault((spec.project, spec.name), []).append(i)
    needed = [
        {other for name in spec.needs for other in by_name.get((spec.project, array_of(name)), ()) if other != i}
        for i, spec in enumerate(specs)
    ]
    after: dict[int, list[int]] = {}
    for i, others in enumerate(needed):
        for other in others:
            after.setdefault(other, []).append(i)
    left = [len(others) for others in needed]
    ready = [i for i, count in enumerate(left) if not count]  # sorted, and so a heap
    made: list[int] = []
    while ready:
        made.append(heappop(ready))
        for i in after.get(made[-1], ()):
            left[i] -= 1
            if not left[i]:
                heappush(ready, i)
    return made, [i for i, count in enumerate(left) if count]


def array_of(name: str) -> str:
    """`sweep` for `sweep[3]`: the job without the index of a task."""
    return name.partition("[")[0]


def _named(written: str, project: str, context: Context) -> Job | str | Reason:
    """The job; only its id if the same call submits it."""
    found = find_named(written, project, context)
    if len(found) == 1:
        return found[0]
    if found:
        several = [job if isinstance(job, str) else job.id for job in found]
        told = ", ".join(several[:_LISTED]) + (" and more" if len(several) > _LISTED else "")
        message = f"it needs {written!r}, which is the name of several jobs that are not over: {told}"
        return reason("unknown_need", message, f"Give the id of one, as in `needs: [{several[0]}]`.", need=written)
    # The same for a job of another project: whether it exists is not for everybody to know.
    message = f"it needs {written!r}, and project {project!r} has no such job"
    hint = f"Submit it before, or with it in one call; `muster ls --all --project {project}` shows what there is."
    return reason("unknown_need", message, hint, need=written, project=project)


def _unmet(job: Job, wanted: str, context: Context) -> Reason | None:
    """Why the need can't be met any more; None if it is met, or can be."""
    if job.id in context.state.jobs:
        return None
    if job.phase not in FINAL:
        raise Unavailable(f"{job.id}, which it needs, has just ended.", "Submit it again.")
    if is_met(wanted, job.phase):
        return None
    message = f"it starts only if {job.id} {ENDINGS[wanted]}, and that {job.phase}"
    resumable = "" if job.phase == "succeeded" else f"Continue that one first: `muster resume {job.id}`."
    return reason("need_not_met", message, resumable, need=job.id, phase=job.phase, wanted=wanted)
