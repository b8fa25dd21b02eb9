"""Content by its digest: query what is missing, upload, and download for users who may see a run that refers to it."""

from __future__ import annotations

from typing import Annotated, Final

from fastapi import Path, Query, Request, Response
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, ConfigDict, Field
from starlette.concurrency import run_in_threadpool

from muster.api.artifacts import BlobStored, BundleStored, Collection, MissingContent
from muster.core.entities import at_least
from muster.core.errors import Invalid, NotAllowed, NotFound
from muster.core.record_events import ContentCollected
from muster.server.auth import Identity
from muster.server.content import Served, receive, send
from muster.server.context import Caller, Leading, Tracked
from muster.server.leader import Leader
from muster.server.quarantine import Why, check_open
from muster.server.record_context import find_run, holder_of
from muster.server.routes.worker import CallingAttempt
from muster.server.typed_routes import needs, typed_router
from muster.track.blobs import check_digest
from muster.track.holders import Holder, naming_code, of_project
from muster.track.tracking import Tracking

router = typed_router(prefix="/v1", tags=["content"])

Digest = Annotated[str, Path(pattern=r"^[0-9a-f]{64}$", description="SHA-256, in hex")]
Hex = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Run = Annotated[str | None, Query(max_length=500, pattern=r"^[^\x00]*$", description="a run that refers to it")]


_HEAD: Final = 72  # bytes before each content of a bundle


class MissingBody(BaseModel):
    model_config = ConfigDict(extra="forbid")

    digests: list[Hex] = Field(max_length=20_000)
    tree: Hex | None = Field(
        None, description="a snapshot's manifest: nothing is missing when all of its files are there"
    )


@router.post("/blobs/missing", openapi_extra=needs("member"))
def missing(body: MissingBody, leader: Leading, track: Tracked, caller: Caller) -> MissingContent:
    """Which of these must be uploaded: content that is missing, or that you have neither uploaded nor can read.

    The others are kept for hours, even if nothing refers to them.
    """
    _need_member(leader, caller)
    holder = holder_of(leader, caller)
    if body.tree is not None:  # a snapshot: an artifact whose scan found something must be uploaded by its submitter
        holder = naming_code(holder)
    whole = body.tree is not None and track.snapshots.whole(body.tree, holder)
    return {"missing": [] if whole else track.blobs.missing(body.digests, holder), "tree": whole}


@router.post("/artifacts/collect", openapi_extra=needs("superuser"))
def collect(track: Tracked, caller: Caller, dry_run: bool = False) -> Collection:
    """Applies every project's retention now, and deletes content that nothing refers to; or counts what would go."""
    caller.need_superuser()
    if not dry_run:
        track.db.write(events=[track.db.event(ContentCollected(), caller.user, "")])
    return track.retention.apply(dry_run).to_dict()


@router.post("/blobs/bundle", status_code=201, openapi_extra=needs("member"))
async def put_bundle(request: Request, leader: Leading, track: Tracked, caller: Caller) -> BundleStored:
    """Uploads many small blobs in one body. Each is 64 characters of digest, 8 of size in hex, and the bytes."""
    _need_member(leader, caller)
    items = await run_in_threadpool(_unbundled, await request.body())
    await run_in_threadpool(track.blobs.put_many, items, holder_of(leader, caller).owner)
    return {"blobs": len(items)}


@router.put("/blobs/{digest}", status_code=201, openapi_extra=needs("member"))
async def put_blob(digest: Digest, request: Request, leader: Leading, track: Tracked, caller: Caller) -> BlobStored:
    """Stores the body if it has this digest. Content that no run refers to within a day is deleted."""
    _need_member(leader, caller)
    _, size = await receive(request, track.blobs, digest, holder_of(leader, caller).owner)
    return {"digest": digest, "bytes": size}


@router.get("/blobs/{digest}", response_class=StreamingResponse, openapi_extra=needs("viewer"))
def get_blob(
    digest: Digest,
    request: Request,
    leader: Leading,
    track: Tracked,
    caller: Caller,
    run: Run = None,
    why: Why = None,
) -> Response:
    """The content, or a range of it. `run` names a run that refers to it; not needed for artifacts. Quarantined content
    is for administrators, with a reason."""
    served = _served(leader, track, caller, digest, run)
    check_open(track, caller, digest, why)
    return send(request, served)


@router.head("/blobs/{digest}", response_class=Response, openapi_extra=needs("viewer"))
def head_blob(
    digest: Digest, request: Request, leader: Leading, track: Tracked, caller: Caller, run: Run = None
) -> Response:
    return send(request, _served(leader, track, caller, digest, run), body=False)


@router.head("/ingest/blobs/{digest}", response_class=Response, openapi_extra=needs("attempt"))
def head_of_launcher(digest: Digest, leader: Leading, track: Tracked, calling_attempt: CallingAttempt) -> Response:
    """Whether the attempt's project has the content, so that a launcher can skip the upload: 200 (kept) or 404."""
    holder = _worker(leader, track, calling_attempt[0])
    return Response(status_code=404 if holder is None or track.blobs.missing([digest], holder) else 200)


@router.put(
    "/ingest/blobs/{digest}",
    responses={
        410: {"description": "the run is unknown or was deleted: nothing of it is kept", "content": {"text/plain": {}}}
    },
    openapi_extra=needs("attempt"),
)
async def put_of_launcher(
    digest: Digest, request: Request, leader: Leading, track: Tracked, calling_attempt: CallingAttempt
) -> Response:
    """Stores content that a launcher uploads for its attempt. A document in its stream refers to it later."""
    holder = await run_in_threadpool(_worker, leader, track, calling_attempt[0])
    if holder is None:
        return Response(f"There is no run {calling_attempt[0]}.", status_code=410)
    try:
        await run_in_threadpool(leader.ingest.check_open, *calling_attempt)
    except NotFound as error:
        return Response(error.message, status_code=410)
    await receive(request, track.blobs, digest, holder.owner)
    return Response(status_code=204)


def _unbundled(body: bytes) -> list[tuple[str, bytes]]:
    found, at = [], 0
    while at < len(body):
        head, start = body[at : at + _HEAD], at + _HEAD
        try:
            digest, size = check_digest(head[:64].decode("ascii")), int(head[64:], 16)
        except ValueError:
            digest, size = "", -1
        if len(head) < _HEAD or size < 0 or start + size > len(body):
            raise Invalid(f"The bundle is damaged at byte {at} of {len(body)}.", "Send it again.")
        found.append((digest, body[start : start + size]))
        at = start + size
    return found


def _served(leader: Leader, track: Tracking, caller: Identity, digest: str, ref: str | None) -> Served:
    """Raises the same NotFound for content that doesn't exist and for content of others."""
    size = track.blobs.size(digest)
    if size is None or not _readable(leader, track, caller, digest, ref):
        raise NotFound(
            f"There is no content {digest} that you can see.",
            "Name a run that refers to it: ?run=RUN. See `muster runs artifacts RUN`.",
        )
    return Served(digest, size, digest, "", lambda start, stop: track.blobs.open(digest, start, stop))


def _readable(leader: Leader, track: Tracking, caller: Identity, digest: str, ref: str | None) -> bool:
    if ref is not None:
        return track.snapshots.refers(find_run(leader, track, caller, ref).id, digest)
    state = leader.store.state()
    found = track.runs.many(sorted(track.artifacts.runs_with(digest)))
    return any(caller.role(state, run.project) is not None for run in found.values())


def _worker(leader: Leader, track: Tracking, run: str) -> Holder | None:
    found = leader.store.job(run) or track.runs.get(run)
    return None if found is None else of_project(found.project)


def _need_member(leader: Leader, caller: Identity) -> None:
    """Content has no project before a run refers to it: a member of any project may upload."""
    state = leader.store.state()
    projects = caller.projects(state)
    roles = [caller.token.role] if projects is None else [caller.role(state, project) for project in projects]
    if not any(role is not None and at_least(role, "member") for role in roles):
        raise NotAllowed("This needs the role member in a project.", "Ask an admin of a project.")
