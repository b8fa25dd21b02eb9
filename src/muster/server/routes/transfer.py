"""Import and export of runs: begins an import, stores its stream, and returns all points and media."""

from __future__ import annotations

import hashlib
from typing import Annotated, Any, Final, Literal, cast

import numpy as np
from fastapi import Path, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field
from sqlalchemy import select
from starlette.concurrency import run_in_threadpool

from muster.api.transfer import ImportBegun, MediaPage, MediumView
from muster.api.words import FINAL
from muster.api.worker import IngestReply
from muster.core.errors import Conflict, Invalid, NotFound
from muster.server.auth import Identity
from muster.server.context import HEAVY, Caller, Leading, Tracked
from muster.server.leader import Leader
from muster.server.record_context import RunRef, find_run, holder_of
from muster.server.typed_routes import JsonAnswer, needs, typed_router
from muster.store.codec import check_text, loads
from muster.store.record_tables import media
from muster.track.rows import Run
from muster.track.tracking import Tracking
from muster.track.values import purged
from muster.wire import Batch

router = typed_router(prefix="/v1/runs", tags=["transfer"])

SOURCE: Final = "import:"
Text = Annotated[str, Field(pattern=r"^[^\x00]*$", max_length=500)]
Name = Annotated[str, Path(min_length=1, max_length=256, pattern=r"^[^\x00]*$")]
Small = Annotated[int | None, Query(ge=0, le=2**31 - 1)]
_PAGE: Final = 200  # media per answer


class ImportBody(BaseModel):
    """`key` identifies the run in the tool that it comes from. A different `fingerprint` imports it again."""

    model_config = ConfigDict(extra="forbid")

    tool: str = Field(pattern=r"^[a-z][a-z0-9-]{0,30}$")
    key: Text = Field(min_length=1)
    fingerprint: str = Field(pattern=r"^[0-9a-f]{64}$")
    project: str = Field("default", max_length=100, pattern=r"^[^\x00]*$")
    name: Text = ""
    purpose: str = Field("", max_length=8000, pattern=r"^[^\x00]*$")
    place: str = Field("", max_length=4000, pattern=r"^[^\x00]*$", description="where it was found, for people")
    created_at: float = Field(ge=-1e11, le=1e12, allow_inf_nan=False)
    parent: Text = Field("", description="the key of the run that it belongs to, which was imported before")


@router.post("/import", openapi_extra=needs("member"))
def begin_import(body: ImportBody, leader: Leading, track: Tracked, caller: Caller) -> ImportBegun:
    """Begins the import of a run and returns it. A run that was imported before is the same run."""
    check_text(body.key, body.project, body.name, body.purpose, body.place, body.parent)
    state = leader.store.state()
    caller.need(state, body.project, "member")
    if body.project not in state.projects:
        raise NotFound(f"There is no project {body.project!r}.", "See `muster project ls`.")
    run = _run_id(track, body, body.key)
    parent = _run_id(track, body, body.parent) if body.parent else None
    if parent is not None and track.runs.get(parent) is None:
        raise NotFound("The run that this one belongs to was not imported yet.", "Import it first.")
    with track.db.holding(run):
        found = track.runs.get(run)
        if found is None:
            doc = {"origin": _origin(body, 1, done=False)}
            found = track.runs.create(
                id=run, project=body.project, user=caller.user, name=body.name, source=SOURCE + body.tool,
                created_at=body.created_at, started_at=body.created_at, purpose=body.purpose, parent=parent, doc=doc,
            )  # fmt: skip
        elif found.deleted_at is not None:
            raise Conflict(
                f"{run} was imported from there before, and is deleted.",
                f"Restore it, or `muster runs rm {run}` first.",
            )
        elif found.doc["origin"]["fingerprint"] != body.fingerprint:
            # It has changed since: all of it is read again and replaces what was read before.
            origin = _origin(body, found.doc["origin"]["attempt"] + 1, done=False)
            found = track.runs.update(run, actor=caller.user, phase="running", doc={"origin": origin})
    origin = found.doc["origin"]
    return {"id": run, "attempt": origin["attempt"], "done": origin["done"]}


@router.post("/{ref}/import", dependencies=HEAVY, openapi_extra=needs("member"))
async def take_in(
    ref: RunRef,
    request: Request,
    leader: Leading,
    track: Tracked,
    caller: Caller,
    attempt: Annotated[int, Query(ge=1, le=2**31 - 1)],
) -> JsonAnswer[IngestReply]:
    """Stores a batch (see `muster.wire.Batch`) of an import once, however often it is sent."""
    body = await request.body()
    try:
        batch = Batch.decode(body)
    except (ValueError, RecursionError) as error:
        raise Invalid(f"The body is not a batch: {error}.") from error
    run = await run_in_threadpool(find_run, leader, track, caller, ref, "member")
    reply = await run_in_threadpool(_take_in, leader, track, run, attempt, batch, caller)
    return JsonAnswer(reply)


@router.get("/{ref}/points/{name:path}", response_class=Response, dependencies=HEAVY, openapi_extra=needs("viewer"))
def points(
    ref: RunRef,
    name: Name,
    leader: Leading,
    track: Tracked,
    caller: Caller,
    rank: Small = None,
    part: Annotated[
        Literal["standing", "superseded", "all"], Query(description="what counts, what was reported anew, or both")
    ] = "standing",
    start: Annotated[int | None, Query(ge=-(2**63), lt=2**63, description="from this step on")] = None,
    stop: Annotated[int | None, Query(ge=-(2**63), lt=2**63, description="before this step")] = None,
) -> Response:
    """All points of a series as little-endian arrays in sequence: step i64, time f64, value f64, attempt i32."""
    run = find_run(leader, track, caller, ref)
    found = track.metrics.points(run.id, name, rank=rank, start=start, stop=stop, superseded=part != "standing")
    keep = np.ones(len(found), np.bool_)
    if part == "superseded":
        bands = track.metrics.curve(run.id, name, rank=rank, buckets=1).bands
        keep[:] = False
        for band in bands:
            if band.superseded_from is not None:
                keep |= (found.attempt == band.attempt) & (found.step >= band.superseded_from)
    arrays = ((found.step, "<i8"), (found.time, "<f8"), (found.value, "<f8"), (found.attempt, "<i4"))
    body = b"".join(array[keep].astype(kind, copy=False).tobytes() for array, kind in arrays)
    return Response(body, media_type="application/octet-stream")


@router.get("/{ref}/media", dependencies=HEAVY, openapi_extra=needs("viewer"))
def list_media(
    ref: RunRef,
    leader: Leading,
    track: Tracked,
    caller: Caller,
    name: Annotated[str | None, Query(max_length=500, pattern=r"^[^\x00]*$")] = None,
    after: Annotated[int, Query(ge=0, lt=2**63)] = 0,
    limit: Annotated[int, Query(ge=1, le=_PAGE)] = _PAGE,
) -> MediaPage:
    """Histograms, images, tables and texts in the order of arrival: `data`, or `digest` for /v1/blobs/DIGEST."""
    run = find_run(leader, track, caller, ref)
    query = select(media).where(media.c.run == run.id, media.c.id > after).order_by(media.c.id).limit(limit)
    if name is not None:
        query = query.where(media.c.name == name)
    with track.db.reading() as connection:
        rows = connection.execute(query).all()
    found = [_medium(row) for row in rows]
    return {"run": run.id, "media": found, "next": found[-1]["id"] if len(found) == limit else None}


def _run_id(track: Tracking, body: ImportBody, key: str) -> str:
    """The same id for the same origin and project; if that run was purged, an id that was never used."""
    for turn in range(1000):
        mark = hashlib.sha256(f"{body.project}\0{key}\0{turn}".encode()).hexdigest()[:11]
        run = f"{body.tool}-i{mark}"  # not its name, which may be that of a folder
        with track.db.reading() as connection:
            if not purged(connection, run):
                return run
    raise Conflict(f"{key} was imported and purged a thousand times.", "Import it into another project.")


def _origin(body: ImportBody, attempt: int, done: bool) -> dict[str, Any]:
    kept = {"tool": body.tool, "key": body.key, "fingerprint": body.fingerprint, "place": body.place}
    return {**kept, "attempt": attempt, "done": done}


def _take_in(leader: Leader, track: Tracking, run: Run, attempt: int, batch: Batch, caller: Identity) -> str:
    origin = run.doc.get("origin") if run.source.startswith(SOURCE) else None
    if not isinstance(origin, dict) or "fingerprint" not in origin:
        raise Invalid(f"{run.id} was not imported (its source is {run.source}).", "Begin with POST /v1/runs/import.")
    if attempt != origin["attempt"]:
        raise Conflict(
            f"{run.id} is being imported anew (attempt {origin['attempt']}; attempt {attempt} was given).",
            "Begin again with POST /v1/runs/import.",
        )
    try:
        reply = leader.ingest.accept(run.id, attempt, batch, holder_of(leader, caller))
    except NotFound as error:
        raise Conflict(f"{run.id} was deleted while it was imported.", "Import it again.") from error
    if batch.state == "ended" and not origin["done"]:
        done = {"origin": {**origin, "done": True}}
        with track.db.holding(run.id):
            now = track.runs.get(run.id)
            if now is not None and now.phase in FINAL and now.doc["origin"]["attempt"] == attempt:
                track.runs.update(run.id, actor=caller.user, doc=done)
    return reply.to_json()


def _medium(row: Any) -> MediumView:
    names = ("id", "name", "step", "attempt", "rank", "time", "kind")
    doc = {key: value for key, value in loads(row.doc).items() if key != "id"}
    return cast(MediumView, {**{name: getattr(row, name) for name in names}, **doc})
