"""Routes for launchers: they ship what their ranks reported, and fetch their job's secrets and code."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Annotated

from fastapi import Depends, Header, Request, Response
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError
from starlette.concurrency import run_in_threadpool

from muster.api.worker import CodeManifest, IngestReply, MeetReply, SecretValues
from muster.control.node_health import nodes_to_check
from muster.core.errors import Invalid, NotAllowed, NotFound, Unauthenticated
from muster.core.job import Job
from muster.server.auth import still_member
from muster.server.context import Leading, Serving, Tracked, leader_of
from muster.server.leader import Leader
from muster.server.typed_routes import JsonAnswer, needs, typed_router
from muster.track.blobs import Blobs
from muster.track.external import writer
from muster.track.snapshots import MANIFEST_BYTES
from muster.track.tracking import Tracking
from muster.wire import Batch

_DIGESTS = TypeAdapter(Annotated[list[Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]], Field(max_length=10_000)])

router = typed_router(prefix="/v1/ingest", tags=["workers"])


def attempt(request: Request, authorization: Annotated[str | None, Header(max_length=500)] = None) -> tuple[str, int]:
    """The attempt that the launcher's token is for."""
    leader = leader_of(request)
    found = leader.keyring.attempt_of((authorization or "").removeprefix("Bearer ").strip())
    if found is None:
        raise Unauthenticated("The attempt's token is not valid.")
    if leader.track is not None and found[0] not in leader.store.state().jobs:
        _check_writer(leader, leader.track, *found)
    return found


def _check_writer(leader: Leader, track: Tracking, run_id: str, number: int) -> None:
    """A user holds the token of a run outside Muster's jobs. It becomes invalid when the user leaves the project."""
    run = track.runs.get(run_id)
    if run is None or run.of_job:
        return
    user = writer(run, number)
    if not still_member(leader.store.state(), user, run.project, leader.clock.now()):
        raise NotAllowed(
            f"{user}, who opened this attempt of {run.id}, is no longer a member of project {run.project!r}.",
            "Ask an admin of the project.",
        )


CallingAttempt = Annotated[tuple[str, int], Depends(attempt)]


@router.post(
    "",
    responses={
        410: {
            "description": "the attempt is unknown: its launcher should stop its ranks and leave",
            "content": {"text/plain": {}},
        }
    },
    openapi_extra=needs("attempt"),
)
async def ingest(
    request: Request, leader: Leading, service: Serving, calling_attempt: CallingAttempt
) -> JsonAnswer[IngestReply]:
    """Stores a batch (see `muster.wire.Batch`) once, however often it is sent."""
    batch = await run_in_threadpool(_batch, await request.body())
    job, number = calling_attempt
    try:
        reply = await run_in_threadpool(leader.ingest.accept, job, number, batch)
    except NotFound as error:
        return JsonAnswer(error.message, status_code=410, media_type="text/plain")
    if batch.pieces:
        service.hub.notify([job])
    if batch.state == "running" and (waiting := leader.execs.waiting(job, number, batch.worker)):
        reply = replace(reply, execs=waiting)
    return JsonAnswer(reply.to_json())


@router.get("/secrets", openapi_extra=needs("attempt"))
def secrets(leader: Leading, calling_attempt: CallingAttempt) -> SecretValues:
    """The values of the secrets that the job names, while its attempt is the current one and has not ended."""
    job = _running(leader, calling_attempt)
    if not still_member(leader.store.state(), job.user, job.project, leader.clock.now()):
        raise NotFound(f"{job.user} is no longer a member of project {job.project!r}: no secrets are given out.")
    values = {}
    for name in job.spec.secrets:
        cipher = leader.store.secret(job.project, name)
        if cipher is None:
            raise NotFound(f"The secret {name} is gone.")
        values[name] = leader.keyring.unseal(cipher)
    return values


class MeetBody(BaseModel):
    model_config = ConfigDict(extra="forbid")

    worker: int = Field(ge=0)
    late: bool = False  # its node failed lately
    port: int = Field(0, ge=0, lt=1 << 16)  # where it listens, if it is the first worker


@router.post("/meet", openapi_extra=needs("attempt"))
def meet(body: MeetBody, leader: Leading, calling_attempt: CallingAttempt) -> MeetReply:
    """For a worker that is ready to measure its gang's links: whether to wait for others, to meet, or to go on. All
    workers of an attempt are told the same; see `muster.control.meetings`."""
    job, now = _running(leader, calling_attempt), leader.clock.now()
    assert job.attempt is not None
    workers, state = job.attempt.workers, leader.store.state()
    sick = nodes_to_check(state, job.attempt.pool, now)
    sound = job.stop is not None or all(one.placed and one.node not in sick for one in workers)
    return leader.meetings.join(calling_attempt, len(workers), body.worker, body.late, body.port, sound, now)


@router.get("/code", openapi_extra=needs("attempt"))
def code(leader: Leading, track: Tracked, calling_attempt: CallingAttempt) -> JsonAnswer[CodeManifest]:
    """The manifest of the job's code snapshot, {path: [sha256, bytes, mode]}, for nodes that don't have its folder."""
    return JsonAnswer(track.blobs.read(_tree(leader, calling_attempt), MANIFEST_BYTES))


@router.post("/code/bundle", response_class=StreamingResponse, openapi_extra=needs("attempt"))
async def code_bundle(request: Request, leader: Leading, track: Tracked, calling_attempt: CallingAttempt) -> Response:
    """Files of the job's code snapshot, by a JSON list of digests. Each is 64 characters of digest, 8 of size in hex,
    and the bytes.
    """
    try:
        wanted = _DIGESTS.validate_json(await request.body())
    except ValidationError as error:
        raise Invalid(f"The body is no list of digests: {error.errors()[0]['msg']}.") from error
    sizes = await run_in_threadpool(_sizes, leader, track, calling_attempt, wanted)
    return StreamingResponse(_bundle(track.blobs, wanted, sizes), media_type="application/octet-stream")


def _batch(body: bytes) -> Batch:
    try:
        return Batch.decode(body)
    except ValueError as error:
        raise Invalid(f"The body is not a batch: {error}.") from error


def _sizes(leader: Leader, track: Tracking, calling_attempt: tuple[str, int], wanted: Sequence[str]) -> dict[str, int]:
    """Sizes of the files in the job's snapshot. Raises NotFound unless it contains all wanted files."""
    files = track.snapshots.manifest(_tree(leader, calling_attempt)).files.values()
    sizes = {digest: size for digest, size, _ in files}
    if not sizes.keys() >= set(wanted) or track.blobs.missing(wanted):
        raise NotFound("The job's snapshot has no such file.")
    return sizes


def _bundle(blobs: Blobs, digests: Sequence[str], sizes: dict[str, int]) -> Iterator[bytes]:
    for digest in digests:
        yield f"{digest}{sizes[digest]:08x}".encode()
        yield from blobs.open(digest)


def _running(leader: Leader, calling_attempt: tuple[str, int]) -> Job:
    """The job of an attempt, while it is the current one and has not ended."""
    job_id, number = calling_attempt
    job = leader.store.job(job_id)
    if job is None or not job.active or job.attempt is None or job.attempt.number != number:
        raise NotFound("The attempt is not running.")
    return job


def _tree(leader: Leader, calling_attempt: tuple[str, int]) -> str:
    found = _running(leader, calling_attempt).code
    if not found:
        raise NotFound("The job was submitted without a snapshot of its code.")
    return found
