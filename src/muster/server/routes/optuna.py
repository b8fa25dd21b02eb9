"""Journals of Optuna, for its journal storage: append, read from a number on, snapshots; `track/optuna_journals`."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Literal, cast

from fastapi import Path, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field
from starlette.concurrency import run_in_threadpool

from muster.api.optuna import (
    OptunaAppended,
    OptunaJournalDeleted,
    OptunaJournalList,
    OptunaJournalView,
    OptunaLogs,
    OptunaSnapshotSaved,
)
from muster.core.errors import NotFound
from muster.server.auth import Identity
from muster.server.context import Caller, Leading, Tracked
from muster.server.leader import Leader
from muster.server.routes.cluster import Name
from muster.server.typed_routes import needs, typed_router
from muster.track.optuna_journals import LOGS_AT_ONCE, NAME, OptunaJournal

router = typed_router(prefix="/v1/projects/{project}/optuna", tags=["optuna"])

Journal = Annotated[str, Path(alias="name", pattern=f"^{NAME}$")]
Known = Annotated[int, Query(ge=0, lt=2**53, description="the journal's id, if it is known: another one is refused")]
After = Annotated[int, Query(ge=0, lt=2**53, description="the number of the first log that is wanted")]
Format = Annotated[str, Query(pattern=r"^[A-Za-z0-9._+-]{1,100}$", description="the versions that can read it")]
Log = Annotated[str, Field(min_length=2, max_length=2 << 20)]


class AppendBody(BaseModel):
    model_config = ConfigDict(extra="forbid")

    key: str = Field(pattern=r"^[0-9a-f]{32}$", description="the same in every repetition of the request")
    logs: list[Log] = Field(min_length=1, max_length=LOGS_AT_ONCE)
    id: int = Field(0, ge=0, lt=2**53, description="the journal's id; 0: it is made unless there is one")
    after: int = Field(0, ge=0, lt=2**53, description="the first log that is wanted of those before the appended ones")


@router.get("", openapi_extra=needs("viewer"))
def list_journals(project: Name, leader: Leading, track: Tracked, caller: Caller) -> OptunaJournalList:
    _see(leader, caller, project, "viewer")
    return {"journals": [_view(one) for one in track.optuna.journals([project])]}


@router.get("/{name}/logs", openapi_extra=needs("viewer"))
def read_logs(
    project: Name, journal: Journal, leader: Leading, track: Tracked, caller: Caller, after: After = 0, id: Known = 0
) -> OptunaLogs:
    """The logs from a number on, as many as fit into an answer; none of a journal that there is not yet."""
    _see(leader, caller, project, "viewer")
    page = track.optuna.read(project, journal, after, id)
    return {"id": page.id, "end": page.end, "logs": page.logs}


@router.post("/{name}/logs", openapi_extra=needs("member"))
def append_logs(
    project: Name, journal: Journal, body: AppendBody, leader: Leading, track: Tracked, caller: Caller
) -> OptunaAppended:
    """Appends logs, once for each key. Answers with what others appended before them since `after`."""
    _see(leader, caller, project, "member")
    made = track.optuna.append(project, journal, caller.user, body.key, body.logs, body.id)
    others = track.optuna.between(made.id, body.after, made.first)
    return {"id": made.id, "end": made.end, "first": made.first, "logs": others}


@router.get("/{name}/snapshot", response_class=Response, openapi_extra=needs("viewer"))
def read_snapshot(
    project: Name, journal: Journal, leader: Leading, track: Tracked, caller: Caller, format: Format
) -> Response:
    """The newest snapshot of this format, as its writer made it; empty (204) if there is none."""
    _see(leader, caller, project, "viewer")
    data = track.optuna.snapshot(project, journal, format)
    if data is None:
        return Response(status_code=204)
    return Response(data, media_type="application/octet-stream")


@router.put("/{name}/snapshot", openapi_extra=needs("member"))
async def save_snapshot(
    project: Name,
    journal: Journal,
    request: Request,
    leader: Leading,
    track: Tracked,
    caller: Caller,
    format: Format,
    logs: Annotated[int, Query(ge=1, lt=2**53, description="that it adds up")],
    id: Known = 0,
) -> OptunaSnapshotSaved:
    """Keeps what the first logs add up to, so that workers need not replay them. An older one is replaced."""
    _see(leader, caller, project, "member")
    data = await request.body()
    kept = await run_in_threadpool(track.optuna.save_snapshot, project, journal, id, format, logs, data)
    return {"logs": kept}


@router.delete("/{name}", openapi_extra=needs("admin"))
def delete_journal(
    project: Name, journal: Journal, leader: Leading, track: Tracked, caller: Caller
) -> OptunaJournalDeleted:
    """Deletes the journal with all of its studies. Workers that use it are told so."""
    _see(leader, caller, project, "admin")
    track.optuna.delete(project, journal, caller.user)
    return {"project": project, "name": journal, "deleted": True}


def _view(one: OptunaJournal) -> OptunaJournalView:
    return cast(OptunaJournalView, {key: value for key, value in asdict(one).items() if key != "id"})


def _see(leader: Leader, caller: Identity, project: str, role: Literal["viewer", "member", "admin"]) -> None:
    state = leader.store.state()
    caller.need(state, project, role)
    if project not in state.projects:
        raise NotFound(f"There is no project {project!r}.", "See `muster project ls`.")
