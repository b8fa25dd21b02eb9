"""Runs of scripts outside Muster's jobs: they open a run, send heartbeats, and ship to /v1/ingest like launchers."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Response
from pydantic import BaseModel, ConfigDict, Field

from muster.api.worker import RunOpened
from muster.core.entities import at_least
from muster.core.errors import NotFound
from muster.server.context import Caller, Leading, Tracked
from muster.server.record_context import find_run
from muster.server.routes.worker import CallingAttempt
from muster.server.typed_routes import needs, typed_router
from muster.track.external import Opening

router = typed_router(prefix="/v1/runs/external", tags=["workers"])

Text = Annotated[str, Field(max_length=500)]


class OpenBody(BaseModel):
    model_config = ConfigDict(extra="forbid")

    id: str = Field(min_length=1, max_length=100, description="chosen by the script, so that it is known offline too")
    key: str = Field(pattern=r"^[0-9a-f]{32}$", description="the same in every repetition of the request")
    resume: bool = Field(False, description="go on with a run that has ended, as its next attempt")
    project: str = Field("default", max_length=100)
    name: Text = ""
    params: dict[str, Any] = Field(default_factory=dict)
    tags: dict[str, str] = Field(default_factory=dict)
    purpose: str = Field("", max_length=32_000)
    created_at: float | None = Field(None, ge=0, le=1e11)
    command: str = Field("", max_length=4000)
    host: Text = ""
    pid: int = Field(0, ge=0, le=2**31)


@router.post("", status_code=201, openapi_extra=needs("member"))
def open_run(body: OpenBody, leader: Leading, track: Tracked, caller: Caller) -> RunOpened:
    """Opens a run. Returns its id, attempt and shipping token; the same `key` again returns the same."""
    state, run, project = leader.store.state(), body.id, body.project
    if body.resume:
        found = find_run(leader, track, caller, run, "member")
        run, project = found.id, found.project
    caller.need(state, project, "member")
    if project not in state.projects:
        raise NotFound(f"There is no project {project!r}.", "See `muster project ls`.")
    given = body.model_dump(exclude={"resume", "id", "project"})
    admin = at_least(caller.role(state, project), "admin")
    asked = Opening(id=run, project=project, user=caller.user, admin=admin, **given)
    attempt = track.external.resume(asked) if body.resume else track.external.start(asked)
    return {"id": run, "attempt": attempt, "token": leader.keyring.attempt_token(run, attempt)}


@router.post("/beat", status_code=204, response_class=Response, openapi_extra=needs("attempt"))
def beat(leader: Leading, track: Tracked, calling_attempt: CallingAttempt) -> Response:
    """Heartbeat of the script that writes to a run."""
    leader.ingest.check_open(*calling_attempt)
    track.external.beat(calling_attempt[0])
    return Response(status_code=204)
