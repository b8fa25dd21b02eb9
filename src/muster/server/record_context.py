"""Finds the run that a reference means, if the caller may see it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Final

from fastapi import Path
from sqlalchemy import ColumnElement, select

from muster.core.entities import Role
from muster.core.errors import Invalid, NotFound
from muster.server.auth import Identity
from muster.server.context import unfinished_job, whole_number
from muster.server.leader import Leader
from muster.store import record_tables as tables
from muster.track.holders import Holder, of_user
from muster.track.rows import Run, run_of
from muster.track.tracking import Tracking

RunRef = Annotated[
    str,
    Path(
        min_length=1,
        max_length=500,
        pattern=r"^[^\x00]*$",
        description="A run's id, its job's number, a name (the run of its one job that has not ended, else its newest "
        "run), or how its id begins (6 characters)",
    ),
]
_PREFIX: Final = 6  # minimum characters of an id's prefix


def find_run(leader: Leader, track: Tracking, caller: Identity, ref: str, role: Role = "viewer") -> Run:
    """Finds a run by id, number, name or prefix of an id, in that order; a hidden run by its whole id only."""
    state = leader.store.state()
    visible = caller.projects(state)
    run = _look(leader, track, caller, ref, visible)
    if run is None or caller.role(state, run.project) is None:
        raise NotFound(f"There is no run {ref!r} that you can see.", "See `muster runs`.")
    caller.need_run(run.id)
    caller.need(state, run.project, role)
    return run


def holder_of(leader: Leader, caller: Identity) -> Holder:
    """The caller as a holder of content."""
    return of_user(caller.user, caller.projects(leader.store.state()))


def _look(leader: Leader, track: Tracking, caller: Identity, ref: str, visible: Sequence[str] | None) -> Run | None:
    found = track.runs.get(ref)
    if found is not None:
        return found
    if (number := whole_number(ref)) is not None:
        job = leader.store.job_by_number(number)
        return track.runs.get(job.id) if job is not None else None
    job = unfinished_job(leader, caller, ref)
    if job is not None:
        return track.runs.get(job.id)
    runs = tables.runs.c
    if named := _newest(track, visible, 1, runs.name == ref):
        return named[0]
    # Last, because a job's name is also how the ids of all its jobs begin.
    begun = _newest(track, visible, 2, runs.id.startswith(ref, autoescape=True)) if len(ref) >= _PREFIX else []
    if len(begun) > 1:
        raise Invalid(f"{ref!r} is how several runs begin: {begun[0].id}, {begun[1].id}.", "Give more of the id.")
    return begun[0] if begun else None


def _newest(track: Tracking, visible: Sequence[str] | None, most: int, *where: ColumnElement[bool]) -> list[Run]:
    runs = tables.runs
    query = select(runs).where(runs.c.deleted_at.is_(None), *where).order_by(runs.c.created_at.desc()).limit(most)
    if visible is not None:
        query = query.where(runs.c.project.in_(list(visible)))
    with track.db.reading() as connection:
        return [run_of(row) for row in connection.execute(query)]
