"""The logbook of a run and of a project: read, search, write and export."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any, Literal, cast

from fastapi import Query, Response
from pydantic import BaseModel, ConfigDict, Field

from muster.api.logbook import NotePage, NoteView, ProjectNotes, RunNotes
from muster.api.words import NoteKind
from muster.core.errors import Invalid, NotFound
from muster.server.context import HEAVY, Caller, Leading, Tracked
from muster.server.record_context import RunRef, find_run
from muster.server.routes.cluster import Name
from muster.server.typed_routes import needs, typed_router
from muster.track.logbook import ATTACHMENTS_MAX, TEXT_MAX, LogbookEntry
from muster.track.tracking import Tracking

router = typed_router(prefix="/v1", tags=["logbook"])

After = Annotated[int, Query(ge=0, le=2**53, description="the id of the last entry that is known")]
Limit = Annotated[int, Query(ge=1, le=1000)]
Search = Annotated[str | None, Query(max_length=500, pattern=r"^[^\x00]*$", description="a text, whatever its case")]
Kinds = Annotated[list[NoteKind] | None, Query(alias="kind")]
Last = Annotated[bool, Query(description="the newest rather than the oldest")]
_MARKDOWN = "text/markdown; charset=utf-8"


class NoteBody(BaseModel):
    model_config = ConfigDict(extra="forbid")

    text: str = Field(max_length=TEXT_MAX, description="Markdown, kept as it is written")
    attachments: list[str] = Field([], max_length=ATTACHMENTS_MAX, description="paths of the run's artifacts")
    step: int | None = Field(None, ge=-(2**63), lt=2**63)


class ProjectNoteBody(BaseModel):
    model_config = ConfigDict(extra="forbid")

    text: str = Field(max_length=TEXT_MAX, description="Markdown, kept as it is written")


@router.get("/runs/{ref}/notes", dependencies=HEAVY, openapi_extra=needs("viewer"))
def run_notes(
    ref: RunRef,
    leader: Leading,
    track: Tracked,
    caller: Caller,
    after: After = 0,
    limit: Limit = 100,
    search: Search = None,
    kinds: Kinds = None,
    last: Last = False,
) -> RunNotes:
    """Entries in the order in which they were written. For the next page, pass `next` as `after`."""
    run = find_run(leader, track, caller, ref)
    found = track.logbook.entries(run=run.id, after=after, limit=limit, search=search, kinds=kinds or (), last=last)
    return {"run": run.id, **_page(found, limit)}


@router.post("/runs/{ref}/notes", status_code=201, openapi_extra=needs("member"))
def add_note(ref: RunRef, body: NoteBody, leader: Leading, track: Tracked, caller: Caller) -> NoteView:
    run = find_run(leader, track, caller, ref, "member")
    attached = [_attachment(track, run.id, path) for path in body.attachments]
    made = track.logbook.add(run.project, run.id, caller.user, body.text, attachments=attached, step=body.step)
    return note_view(made)


@router.get(
    "/runs/{ref}/logbook",
    response_class=Response,
    responses={200: {"content": {_MARKDOWN: {}}}},
    dependencies=HEAVY,
    openapi_extra=needs("viewer"),
)
def run_logbook(ref: RunRef, leader: Leading, track: Tracked, caller: Caller) -> Response:
    """The whole logbook as one Markdown document."""
    run = find_run(leader, track, caller, ref)
    return Response(track.logbook.export(run=run), media_type=_MARKDOWN)


@router.get("/projects/{project}/notes", dependencies=HEAVY, openapi_extra=needs("viewer"))
def project_notes(
    project: Name,
    leader: Leading,
    track: Tracked,
    caller: Caller,
    after: After = 0,
    limit: Limit = 100,
    search: Search = None,
    kinds: Kinds = None,
    last: Last = False,
) -> ProjectNotes:
    """Entries of the project itself and of all its runs."""
    _see(leader, caller, project, "viewer")
    leader.record.reach()
    found = track.logbook.entries(
        project=project, after=after, limit=limit, search=search, kinds=kinds or (), last=last
    )
    return {"project": project, **_page(found, limit)}


@router.post("/projects/{project}/notes", status_code=201, openapi_extra=needs("member"))
def add_project_note(project: Name, body: ProjectNoteBody, leader: Leading, track: Tracked, caller: Caller) -> NoteView:
    _see(leader, caller, project, "member")
    return note_view(track.logbook.add(project, "", caller.user, body.text))


@router.get(
    "/projects/{project}/logbook",
    response_class=Response,
    responses={200: {"content": {_MARKDOWN: {}}}},
    dependencies=HEAVY,
    openapi_extra=needs("viewer"),
)
def project_logbook(project: Name, leader: Leading, track: Tracked, caller: Caller) -> Response:
    _see(leader, caller, project, "viewer")
    leader.record.reach()
    return Response(track.logbook.export(project=project), media_type=_MARKDOWN)


def note_view(entry: LogbookEntry) -> NoteView:
    return cast(NoteView, asdict(entry))


def _see(leader: Leading, caller: Caller, project: str, role: Literal["viewer", "member"]) -> None:
    state = leader.store.state()
    caller.need(state, project, role)
    if project not in state.projects:
        raise NotFound(f"There is no project {project!r}.", "See `muster project ls`.")


def _attachment(track: Tracking, run: str, path: str) -> dict[str, Any]:
    found = track.artifacts.get(run, path)
    if found is None:
        raise Invalid(f"{path[:200]!r} is no artifact of {run}.", "Upload it first.")
    return {"path": path, "digest": found.digest, "bytes": found.bytes}


def _page(found: list[LogbookEntry], limit: int) -> NotePage:
    return {"entries": [note_view(entry) for entry in found], "next": found[-1].id if len(found) == limit else None}
