"""Finds the job that a submitted job names, as in `needs` and `start_from`, by name or by id."""

from __future__ import annotations

from collections.abc import Callable

from muster.control.admission.base import Context, no_one
from muster.core.array import split_index, task_id
from muster.core.job import Job


def find_named(
    written: str, project: str, context: Context, may_read: Callable[[str], bool] = no_one
) -> list[Job] | list[str]:
    """The jobs of the project that it may mean: one, unless it is not known or ambiguous. Only the ids of those that
    the same call submits. `may_read`: whether a job of this other project is meant too, if its id is given."""
    ids = context.new.get(written, ())
    if len(ids) == 1:
        return list(ids)
    split = split_index(written)
    name = split[0] if split is not None else written
    job = context.job(name)
    if job is not None and job.project == project:
        jobs = [job]
    else:
        jobs = [] if ids else list(context.named(project, name))
        if not jobs and not ids and job is not None and may_read(job.project):
            jobs = [job]
    if split is not None:  # a task of an array
        tasks = [task_id(job, split[1]) for job in jobs if job.is_array]
        jobs = [task for name in tasks if name is not None and (task := context.job(name)) is not None]
    return jobs if len(jobs) == 1 else list(ids) or jobs
