"""Runs: create, show, change, hide, restore and delete; their parameters, tags, changes and attempts."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Annotated, Any

from fastapi import APIRouter, Query
from pydantic import BaseModel, ConfigDict, Field
from sqlalchemy import select

from muster.core.errors import Invalid, NotFound
from muster.core.terms import Kind, Phase
from muster.server.context import Caller, Leading, Tracked
from muster.server.log_reader import output_view
from muster.server.record_context import RunRef, find_run
from muster.server.views import View
from muster.store import record_tables as tables
from muster.store.codec import loads
from muster.track.rows import Run
from muster.track.tracking import Tracking

router = APIRouter(prefix="/v1/runs", tags=["runs"])

Time = Annotated[float | None, Field(ge=0, le=1e11, allow_inf_nan=False, description="seconds since 1970, UTC")]
Text = Annotated[str, Field(max_length=500)]


class RunBody(BaseModel):
    model_config = ConfigDict(extra="forbid")

    id: str | None = Field(None, min_length=1, max_length=100, description="made from the name when null")
    project: str = Field("default", max_length=100)
    name: Text = ""
    kind: Kind = "train"
    source: str = Field("sdk", pattern=r"^(sdk|mlflow|import:[a-z0-9-]{1,40})$")
    experiment: int | None = Field(None, ge=0, le=2**53)
    parent: str | None = Field(None, max_length=500, description="a run that this one belongs to")
    phase: Phase = "running"
    created_at: Time = None
    started_at: Time = None
    ended_at: Time = None
    params: dict[str, Any] = {}
    tags: dict[str, str] = {}
    purpose: str = Field("", max_length=32_000)


class ChangeBody(BaseModel):
    """Null fields don't change."""

    model_config = ConfigDict(extra="forbid")

    name: Text | None = None
    phase: Phase | None = None
    started_at: Time = None
    ended_at: Time = None
    purpose: str | None = Field(None, max_length=32_000)
    experiment: int | None = Field(None, ge=0, le=2**53)


class ParamsBody(BaseModel):
    model_config = ConfigDict(extra="forbid")

    values: dict[str, Any]
    refuse_change: bool = Field(False, description="a parameter that has another value already is an error")


class TagsBody(BaseModel):
    model_config = ConfigDict(extra="forbid")

    values: dict[str, str | None] = Field(description="null removes a tag")


@router.post("", status_code=201)
def create_run(body: RunBody, leader: Leading, track: Tracked, caller: Caller) -> View:
    """Creates a run that is not a job's: of a script, of another tool, or of the past."""
    state = leader.store.state()
    caller.need(state, body.project, "member")
    if body.project not in state.projects:
        raise NotFound(f"There is no project {body.project!r}.", "See `muster project ls`.")
    _check_experiment(track, body.experiment, body.project)
    parent = find_run(leader, track, caller, body.parent).id if body.parent else None
    made = track.runs.create(**body.model_dump(exclude={"parent"}), parent=parent, user=caller.user)
    return run_view(track, track.runs.need(made.id))


@router.get("/{ref}")
def get_run(ref: RunRef, leader: Leading, track: Tracked, caller: Caller) -> View:
    """All that was recorded of a run, with parameters, tags, data and metric summaries; for a job, its output size."""
    run = find_run(leader, track, caller, ref)
    job = leader.store.job(run.id)
    return {**run_view(track, run), "output": output_view(leader, job) if job is not None else None}


@router.patch("/{ref}")
def change_run(ref: RunRef, body: ChangeBody, leader: Leading, track: Tracked, caller: Caller) -> View:
    run = find_run(leader, track, caller, ref, "member")
    _check_experiment(track, body.experiment, run.project)
    return run_view(track, track.runs.update(run.id, actor=caller.user, **body.model_dump()))


@router.delete("/{ref}")
def delete_run(
    ref: RunRef,
    leader: Leading,
    track: Tracked,
    caller: Caller,
    purge: Annotated[bool, Query(description="for good: nothing of it is left but who deleted it, and when")] = False,
) -> View:
    """Hides a run, or deletes it for good. Deleting a run of another user needs the role admin."""
    run = find_run(leader, track, caller, ref, "member")
    if not purge:
        return run_view(track, track.runs.hide(run.id, caller.user))
    if run.user != caller.user:
        caller.need(leader.store.state(), run.project, "admin")
    return {"id": run.id, "purged": True, "rows": track.purge.purge(run.id, caller.user)}


@router.post("/{ref}/restore")
def restore_run(ref: RunRef, leader: Leading, track: Tracked, caller: Caller) -> View:
    """Restores a hidden run to all lists. The run is given by its whole id."""
    run = find_run(leader, track, caller, ref, "member")
    return run_view(track, track.runs.restore(run.id, caller.user))


@router.put("/{ref}/params")
def set_params(ref: RunRef, body: ParamsBody, leader: Leading, track: Tracked, caller: Caller) -> View:
    """Sets parameters. If a parameter had another value, that is recorded as a change."""
    run = find_run(leader, track, caller, ref, "member")
    track.runs.set_params(run.id, body.values, actor=caller.user, refuse_change=body.refuse_change)
    return {"id": run.id, "params": track.runs.params([run.id])[run.id]}


@router.put("/{ref}/tags")
def set_tags(ref: RunRef, body: TagsBody, leader: Leading, track: Tracked, caller: Caller) -> View:
    run = find_run(leader, track, caller, ref, "member")
    track.runs.set_tags(run.id, body.values, caller.user)
    return {"id": run.id, "tags": track.runs.tags([run.id])[run.id]}


@router.get("/{ref}/changes")
def changes(ref: RunRef, leader: Leading, track: Tracked, caller: Caller) -> View:
    """Parameters and tags that were changed afterwards, oldest first."""
    run = find_run(leader, track, caller, ref)
    return {"id": run.id, "changes": [asdict(change) for change in track.runs.changes(run.id)]}


@router.get("/{ref}/attempts")
def attempts(ref: RunRef, leader: Leading, track: Tracked, caller: Caller) -> View:
    """The attempts: nodes, times, outcome, environment and parameters."""
    run = find_run(leader, track, caller, ref)
    return {"id": run.id, "attempts": track.runs.attempts(run.id)}


@router.get("/{ref}/checkpoints")
def checkpoints(ref: RunRef, leader: Leading, track: Tracked, caller: Caller) -> View:
    """The checkpoints in the order of the steps, and how to load them."""
    run = find_run(leader, track, caller, ref)
    table = tables.checkpoints
    query = select(table).where(table.c.run == run.id).order_by(table.c.step, table.c.attempt)
    with track.db.reading() as connection:
        rows = connection.execute(query).all()
    names = ("step", "attempt", "path", "bytes", "time")
    found = [{**{name: getattr(row, name) for name in names}, **loads(row.doc)} for row in rows]
    return {"id": run.id, "checkpoints": found}


def run_view(track: Tracking, run: Run) -> View:
    links = tables.links.c
    with track.db.reading() as connection:
        query = select(links.source, links.doc).where(links.target == f"run:{run.id}", links.role == "reads")
        data = [{"ref": ref, **loads(doc)} for ref, doc in connection.execute(query.order_by(links.source))]
    summaries = track.metrics.summaries([run.id]).get(run.id, {})
    return {
        **asdict(run),
        "params": track.runs.params([run.id])[run.id],
        "tags": track.runs.tags([run.id])[run.id],
        "data": data,
        "metrics": {name: _plain(asdict(summary)) for name, summary in summaries.items()},
    }


def _check_experiment(track: Tracking, experiment: int | None, project: str) -> None:
    if experiment is None:
        return
    found = track.experiments.get(experiment)
    if found is None or found.project != project:
        raise Invalid(f"Project {project!r} has no experiment {experiment}.", "Leave it out for the project's own.")


def _plain(summary: View) -> View:
    """JSON has no NaN and no infinity: they are sent as text."""
    return {name: _said(value) if isinstance(value, float) else value for name, value in summary.items()}


def _said(value: float) -> float | str:
    return value if math.isfinite(value) else "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
