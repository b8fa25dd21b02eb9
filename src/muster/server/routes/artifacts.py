"""Artifacts of runs: list, download, upload and remove; and the code that a run was submitted with."""

from __future__ import annotations

import mimetypes
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Annotated, Any

from fastapi import Depends, Path, Query, Request, Response
from fastapi.responses import StreamingResponse
from starlette.concurrency import run_in_threadpool

from muster.api.artifacts import ArtifactList, ArtifactsRemoved, ArtifactView, CodeFiles
from muster.api.words import FileKind
from muster.core.errors import NotFound
from muster.core.record_events import ArtifactPut, ArtifactRemoved
from muster.server.content import Served, declared, send, staged
from muster.server.context import HEAVY, Caller, Leading, Tracked
from muster.server.quarantine import Why, check_open
from muster.server.record_context import RunRef, find_run, holder_of
from muster.server.routes.blobs import Hex
from muster.server.typed_routes import needs, typed_router
from muster.track.artifacts import Artifact, Folder
from muster.track.blobs import unknown
from muster.track.paths import check_path
from muster.track.snapshots import DIFF_PATH, TREE_PATH
from muster.track.tracking import Tracking

router = typed_router(prefix="/v1/runs/{ref}", tags=["content"])

FilePath = Annotated[str, Path(max_length=4000, description="relative, with / between its parts")]
Prefix = Annotated[str, Query(max_length=4000)]
_TEXT = r"^[^\x00]*$"


@dataclass(frozen=True, slots=True)
class About:
    """The description of an artifact."""

    step: Annotated[int | None, Query(ge=-(2**63), lt=2**63)] = None
    about: Annotated[str | None, Query(max_length=2000, pattern=_TEXT, description="a sentence")] = None
    format: Annotated[str | None, Query(max_length=200, pattern=_TEXT, description="of a checkpoint")] = None
    load: Annotated[str | None, Query(max_length=2000, pattern=_TEXT, description="how to load it")] = None
    files: Annotated[int | None, Query(ge=0, lt=2**53, description="of a checkpoint")] = None
    shards: Annotated[int | None, Query(ge=0, lt=2**53)] = None
    world: Annotated[int | None, Query(ge=0, lt=2**53, description="ranks that wrote it")] = None


@router.get("/artifacts", dependencies=HEAVY, openapi_extra=needs("viewer"))
def list_artifacts(
    ref: RunRef, leader: Leading, track: Tracked, caller: Caller, prefix: Prefix = "", flat: bool = False
) -> ArtifactList:
    """The files of one folder, with its subfolders summed up; with `flat`, all files below it."""
    run = find_run(leader, track, caller, ref)
    prefix = check_path(prefix.strip("/")) if prefix.strip("/") else ""
    found = track.artifacts.list(run.id, prefix) if flat else track.artifacts.children(run.id, prefix)
    files = views(track, run.id, [one for one in found if isinstance(one, Artifact)])
    folders = [one.to_dict() for one in found if isinstance(one, Folder)]
    return {"run": run.id, "prefix": prefix, "files": files, "folders": folders}


@router.get("/artifacts/{path:path}", response_class=StreamingResponse, openapi_extra=needs("viewer"))
def get_artifact(
    ref: RunRef, path: FilePath, request: Request, leader: Leading, track: Tracked, caller: Caller, why: Why = None
) -> Response:
    """The content, or a range of it. Quarantined content is for administrators, with a reason."""
    served = _served(track, find_run(leader, track, caller, ref).id, path)
    check_open(track, caller, served.digest, why)
    return send(request, served)


@router.head("/artifacts/{path:path}", response_class=Response, openapi_extra=needs("viewer"))
def head_artifact(
    ref: RunRef, path: FilePath, request: Request, leader: Leading, track: Tracked, caller: Caller
) -> Response:
    return send(request, _served(track, find_run(leader, track, caller, ref).id, path), body=False)


@router.put("/artifacts/{path:path}", status_code=201, openapi_extra=needs("member"))
async def put_artifact(
    ref: RunRef,
    path: FilePath,
    request: Request,
    leader: Leading,
    track: Tracked,
    caller: Caller,
    said: Annotated[About, Depends()],
    digest: Annotated[
        Hex | None, Query(description="content that the caller uploaded or can read, in place of a body")
    ] = None,
    kind: FileKind = "file",
) -> ArtifactView:
    """Stores the body at this path, or links existing content to it. Replaces what was there before."""
    run = await run_in_threadpool(find_run, leader, track, caller, ref, "member")
    check_path(path)
    sent = request.headers.get("content-type", "application/octet-stream")[:200]
    mime = _mime(path) if sent == "application/octet-stream" else sent
    size = declared(request)
    await run_in_threadpool(track.artifacts.usage.check, run.project, size or 0)
    doc: dict[str, Any] = {"mime": mime or None, "by": caller.user, **asdict(said)}
    holder, known = holder_of(leader, caller), {name: value for name, value in doc.items() if value is not None}
    told = track.db.event(ArtifactPut(path), caller.user, run.project, run.id)
    to: dict[str, Any] = {"kind": kind, "doc": known, "events": [told]}
    if digest is not None:
        lacking = await run_in_threadpool(track.blobs.missing, [digest], holder)
        if lacking:
            raise unknown(digest)
        await run_in_threadpool(check_open, track, caller, digest)
        return (await run_in_threadpool(track.artifacts.put, run.id, path, digest, **to)).to_dict()
    async with staged(request, track.blobs) as stage:
        made = await run_in_threadpool(track.artifacts.upload, run.id, path, stage, size, holder.owner, **to)
    return made.to_dict()


@router.delete("/artifacts/{path:path}", openapi_extra=needs("member"))
def delete_artifact(ref: RunRef, path: FilePath, leader: Leading, track: Tracked, caller: Caller) -> ArtifactsRemoved:
    """Removes a file, or a folder with everything in it."""
    run = find_run(leader, track, caller, ref, "member")
    told = track.db.event(ArtifactRemoved(path), caller.user, run.project, run.id)
    gone = track.artifacts.remove(run.id, path, [told])
    return {"run": run.id, "removed": [one.path for one in gone], "bytes": sum(one.bytes for one in gone)}


@router.get("/code", openapi_extra=needs("viewer"))
def get_code(ref: RunRef, leader: Leading, track: Tracked, caller: Caller) -> CodeFiles:
    """The code snapshot of the run: {path: [sha256, bytes, mode]}. Download each file by /v1/blobs/SHA256?run=RUN."""
    run = find_run(leader, track, caller, ref)
    tree, diff = track.artifacts.get(run.id, TREE_PATH), track.artifacts.get(run.id, DIFF_PATH)
    manifest = track.snapshots.of_run(run.id)
    return {
        "run": run.id,
        "tree": tree.digest if tree and manifest else None,
        "diff": diff.digest if diff else None,
        "files": dict(manifest.files) if manifest else None,
    }


def views(track: Tracking, run: str, found: Sequence[Artifact]) -> list[ArtifactView]:
    """Artifacts of a run with what scans found."""
    verdicts, shown = track.scans.verdicts(run, found), list[ArtifactView]()
    for one in found:
        view, verdict = one.to_dict(), verdicts.get(one.path)
        if verdict is not None:
            view["scan"] = verdict.status
        if verdict is not None and verdict.findings:
            view["findings"] = [finding.to_dict() for finding in verdict.findings]
        shown.append(view)
    return shown


def _served(track: Tracking, run: str, path: str) -> Served:
    found = track.artifacts.get(run, check_path(path))
    if found is None:
        raise NotFound(f"The run {run} has no artifact {path!r}.", f"See `muster runs artifacts {run}`.")
    mime = str(found.doc.get("mime") or _mime(path))
    return Served(found.digest, found.bytes, found.name, mime, lambda a, b: track.artifacts.open(found, a, b))


def _mime(path: str) -> str:
    return mimetypes.guess_type(path)[0] or ""
