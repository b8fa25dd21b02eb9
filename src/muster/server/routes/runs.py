"""Runs: create, show, change, hide, restore and delete; their parameters, tags, changes and attempts."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Query
from pydantic import BaseModel, ConfigDict, Field

from muster.api.runs import ChangeList, CheckpointList, RunAttempts, RunDetail, RunParams, RunPurged, RunTags
from muster.api.words import Kind, Phase
from muster.core.errors import Invalid, NotFound
from muster.server.context import Caller, Leading, Tracked
from muster.server.record_context import RunRef, find_run
from muster.server.run_views import attempt_views, change_views, checkpoint_views, run_view
from muster.server.typed_routes import needs, typed_router
from muster.track.tracking import Tracking

router = typed_router(prefix="/v1/runs", tags=["runs"])

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


@router.post("", status_code=201, openapi_extra=needs("member"))
def create_run(body: RunBody, leader: Leading, track: Tracked, caller: Caller) -> RunDetail:
    """Creates a run that is not a job's: of a script, of another tool, or of the past."""
    state = leader.store.state()
    caller.need(state, body.project, "member")
    if body.project not in state.projects:
        raise NotFound(f"There is no project {body.project!r}.", "See `muster project ls`.")
    _check_experiment(track, body.experiment, body.project)
    parent = find_run(leader, track, caller, body.parent).id if body.parent else None
    made = track.runs.create(**body.model_dump(exclude={"parent"}), parent=parent, user=caller.user)
    return run_view(leader, track, track.runs.need(made.id))


@router.get("/{ref}", openapi_extra=needs("viewer"))
def get_run(ref: RunRef, leader: Leading, track: Tracked, caller: Caller) -> RunDetail:
    """All that was recorded of a run, with parameters, tags, data and metric summaries; for a job, its output size."""
    run = find_run(leader, track, caller, ref)
    return run_view(leader, track, run)


@router.patch("/{ref}", openapi_extra=needs("member"))
def change_run(ref: RunRef, body: ChangeBody, leader: Leading, track: Tracked, caller: Caller) -> RunDetail:
    run = find_run(leader, track, caller, ref, "member")
    _check_experiment(track, body.experiment, run.project)
    return run_view(leader, track, track.runs.update(run.id, actor=caller.user, **body.model_dump()))


@router.delete("/{ref}", openapi_extra=needs("member"))
def delete_run(
    ref: RunRef,
    leader: Leading,
    track: Tracked,
    caller: Caller,
    purge: Annotated[bool, Query(description="for good: nothing of it is left but who deleted it, and when")] = False,
) -> RunDetail | RunPurged:
    """Hides a run, or deletes it for good. Deleting a run of another user needs the role admin."""
    run = find_run(leader, track, caller, ref, "member")
    if not purge:
        return run_view(leader, track, track.runs.hide(run.id, caller.user))
    if run.user != caller.user:
        caller.need(leader.store.state(), run.project, "admin")
    return {"id": run.id, "purged": True, "rows": track.purge.purge(run.id, caller.user)}


@router.post("/{ref}/restore", openapi_extra=needs("member"))
def restore_run(ref: RunRef, leader: Leading, track: Tracked, caller: Caller) -> RunDetail:
    """Restores a hidden run to all lists. The run is given by its whole id."""
    run = find_run(leader, track, caller, ref, "member")
    return run_view(leader, track, track.runs.restore(run.id, caller.user))


@router.put("/{ref}/params", openapi_extra=needs("member"))
def set_params(ref: RunRef, body: ParamsBody, leader: Leading, track: Tracked, caller: Caller) -> RunParams:
    """Sets parameters. If a parameter had another value, that is recorded as a change."""
    run = find_run(leader, track, caller, ref, "member")
    track.runs.set_params(run.id, body.values, actor=caller.user, refuse_change=body.refuse_change)
    return {"id": run.id, "params": track.runs.params([run.id])[run.id]}


@router.put("/{ref}/tags", openapi_extra=needs("member"))
def set_tags(ref: RunRef, body: TagsBody, leader: Leading, track: Tracked, caller: Caller) -> RunTags:
    run = find_run(leader, track, caller, ref, "member")
    track.runs.set_tags(run.id, body.values, caller.user)
    return {"id": run.id, "tags": track.runs.tags([run.id])[run.id]}


@router.get("/{ref}/changes", openapi_extra=needs("viewer"))
def changes(ref: RunRef, leader: Leading, track: Tracked, caller: Caller) -> ChangeList:
    """Parameters and tags that were changed afterwards, oldest first."""
    run = find_run(leader, track, caller, ref)
    return {"id": run.id, "changes": change_views(track, run.id)}


@router.get("/{ref}/attempts", openapi_extra=needs("viewer"))
def attempts(ref: RunRef, leader: Leading, track: Tracked, caller: Caller) -> RunAttempts:
    """The attempts: nodes, times, outcome, environment and parameters."""
    run = find_run(leader, track, caller, ref)
    return {"id": run.id, "attempts": attempt_views(track, run.id)}


@router.get("/{ref}/checkpoints", openapi_extra=needs("viewer"))
def checkpoints(ref: RunRef, leader: Leading, track: Tracked, caller: Caller) -> CheckpointList:
    """The checkpoints in the order of the steps, and how to load them."""
    run = find_run(leader, track, caller, ref)
    return {"id": run.id, "checkpoints": checkpoint_views(track, run.id)}


def _check_experiment(track: Tracking, experiment: int | None, project: str) -> None:
    if experiment is None:
        return
    found = track.experiments.get(experiment)
    if found is None or found.project != project:
        raise Invalid(f"Project {project!r} has no experiment {experiment}.", "Leave it out for the project's own.")
