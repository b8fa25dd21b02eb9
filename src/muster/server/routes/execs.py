"""Exec sessions: a command beside a running job, and its streams; routes of the user, and routes of the worker."""

from __future__ import annotations

import asyncio
import shlex
import time
import uuid
from typing import Annotated, Literal

from fastapi import Path, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field, StringConstraints
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect

from muster.api.execs import ExecClosed, ExecOffset, ExecRequest, ExecView
from muster.core.errors import Conflict, Invalid, NotAllowed, NotStarted
from muster.core.event import Event
from muster.core.job import Job
from muster.core.server_events import ExecOpened
from muster.core.spec import ranks_per_node
from muster.exec_frames import CHUNK, WAIT, Ended
from muster.masking import Masker
from muster.server.auth import Identity
from muster.server.context import Caller, Leading, Ref, find_job, waits_of
from muster.server.execs import Exec, Side
from muster.server.leader import Leader
from muster.server.routes.worker import CallingAttempt
from muster.server.typed_routes import needs, typed_router
from muster.store.base import Entry

router = typed_router(prefix="/v1", tags=["exec"])
_TOLD = 2000  # characters of a command in the event log

Word = Annotated[str, StringConstraints(max_length=100_000, pattern=r"^[^\x00]*$")]
Cells = Annotated[int, Field(ge=1, le=10_000)]
Ident = Annotated[str, Path(pattern=r"^[0-9a-f]{32}$")]
Offset = Annotated[int, Query(ge=0, le=2**62, description="of the first byte, or of the next one that is wanted")]
Wait = Annotated[float, Query(ge=0, le=WAIT, description="seconds")]


class ExecBody(BaseModel):
    model_config = ConfigDict(extra="forbid")

    command: list[Word] = Field(min_length=1, max_length=1000, description="the program and its arguments")
    worker: int | None = Field(None, ge=0, description="the worker, by the index of its node; 0 when null")
    rank: int | None = Field(None, ge=0, description="whose environment it gets; the worker's first when null")
    tty: tuple[Cells, Cells] | None = Field(None, description="rows and columns of a terminal; none when null")
    copy_: Literal["send", "receive"] | None = Field(
        None, alias="copy", description="the command is a path, whose content the node sends or receives"
    )
    term: str = Field("", max_length=100, pattern=r"^[\w.+-]*$", description="TERM of that terminal")


@router.post("/jobs/{ref}/exec", status_code=201, openapi_extra=needs("member"))
async def open_exec(ref: Ref, body: ExecBody, leader: Leading, caller: Caller) -> ExecView:
    """Opens a session: the worker runs the command in the job's folder and environment, isolated as its ranks are.

    The event log records it before the command starts.
    """
    job = await run_in_threadpool(find_job, leader, caller, ref, "member")
    try:
        if job.phase == "queued":
            raise await run_in_threadpool(_queued, leader, caller, job)
        worker, rank = _place(job, body)
    except NotStarted:
        _check_allowed(leader, caller, job)  # else its client would wait, to be refused in the end
        raise
    _check_allowed(leader, caller, job)
    assert job.attempt is not None
    leader.execs.check_room(caller.user, job.id, worker)
    request = ExecRequest(command=body.command, rank=rank, tty=body.tty, term=body.term, copy=body.copy_)
    one = Exec(
        uuid.uuid4().hex, job.id, job.attempt.number, worker, caller.user, job.project, dict(request),
        Side(time.monotonic()),
    )  # fmt: skip
    node = job.attempt.workers[worker].node
    await run_in_threadpool(_record, leader, one, job, node)
    leader.execs.check_room(caller.user, job.id, worker)  # others may have opened some meanwhile
    leader.execs.add(one)
    return {"id": one.id, "job": job.id, "attempt": one.attempt, "worker": worker, "rank": rank, "node": node}


@router.post("/jobs/{ref}/exec/{ident}/input", openapi_extra=needs("member"))
async def exec_input(
    ref: Ref, ident: Ident, request: Request, leader: Leading, caller: Caller, at: Offset = 0, wait: Wait = 0
) -> ExecOffset:
    """Takes the client's frames (`muster.exec_frames`) from this offset on, as many as there is room for."""
    one = await _of_user(leader, caller, ref, ident)
    if one.ended is not None:
        raise Conflict("The exec session has ended.")
    try:
        data = await _body(request)
    except ClientDisconnect:
        one.client.cut = time.monotonic()
        raise
    return {"end": await leader.execs.write(one, one.client, one.input, at, data, wait, _cut(request))}


@router.get("/jobs/{ref}/exec/{ident}/output", response_class=Response, openapi_extra=needs("member"))
async def exec_output(
    ref: Ref, ident: Ident, request: Request, leader: Leading, caller: Caller, at: Offset = 0, wait: Wait = 0
) -> Response:
    """The command's frames from this offset on; what is before it is dropped. The last frame says how it ended."""
    one = await _of_user(leader, caller, ref, ident)
    if one.output.drained(at):
        raise Conflict("The exec session has ended, and all of its output was sent.")
    found = await leader.execs.read(one.client, one.output, at, wait, _cut(request))
    return Response(found, media_type="application/octet-stream")


@router.delete("/jobs/{ref}/exec/{ident}", openapi_extra=needs("member"))
async def close_exec(ref: Ref, ident: Ident, leader: Leading, caller: Caller) -> ExecClosed:
    """Ends a session: its command is killed."""
    one = await _of_user(leader, caller, ref, ident)
    leader.execs.end(one, Ended(None, "The client ended the session."))
    return {"id": ident, "ended": True}


@router.get("/ingest/exec/{ident}", openapi_extra=needs("attempt"))
async def exec_request(ident: Ident, leader: Leading, calling_attempt: CallingAttempt) -> ExecRequest:
    """What the worker should run; from then on the session has begun."""
    one = leader.execs.of_attempt(ident, calling_attempt, claim=True)
    found: ExecRequest = one.request  # type: ignore[assignment]
    return found


@router.get("/ingest/exec/{ident}/input", response_class=Response, openapi_extra=needs("attempt"))
async def exec_host_input(
    ident: Ident,
    request: Request,
    leader: Leading,
    calling_attempt: CallingAttempt,
    at: Offset = 0,
    wait: Wait = 0,
) -> Response:
    """The client's frames, for the worker."""
    one = leader.execs.of_attempt(ident, calling_attempt)
    assert one.host is not None
    found = await leader.execs.read(one.host, one.input, at, wait, _cut(request))
    return Response(found, media_type="application/octet-stream")


@router.post("/ingest/exec/{ident}/output", openapi_extra=needs("attempt"))
async def exec_host_output(
    ident: Ident, request: Request, leader: Leading, calling_attempt: CallingAttempt, at: Offset = 0
) -> ExecOffset:
    """Takes the command's frames; waits for a client that is slow to read them."""
    one = leader.execs.of_attempt(ident, calling_attempt)
    assert one.host is not None
    data = await _body(request)
    return {"end": await leader.execs.write(one, one.host, one.output, at, data, WAIT, _cut(request))}


@router.post("/ingest/exec/{ident}/end", openapi_extra=needs("attempt"))
async def exec_host_end(
    ident: Ident,
    leader: Leading,
    calling_attempt: CallingAttempt,
    code: Annotated[int | None, Query(ge=0, le=255)] = None,
    error: Annotated[str, Query(max_length=2000)] = "",
) -> ExecClosed:
    """The command has ended, and all of its output was sent."""
    one = leader.execs.of_attempt(ident, calling_attempt)
    leader.execs.end(one, Ended(code, error))
    return {"id": ident, "ended": True}


def _queued(leader: Leader, caller: Identity, job: Job) -> Conflict:
    """Says what the job waits for. One that the scheduler has not looked at yet is about to start."""
    cause = leader.look(lambda state: waits_of(leader, caller, state, [job.id])).get(job.id)
    if cause is None or cause.code == "about_to_start":
        return NotStarted(f"The job {job.id} is about to start.", "Try again in a moment.")
    return Conflict(
        f"The job {job.id} is queued: {cause.message}.", f"Wait until it runs; `muster why {job.id}` says when."
    )


def _place(job: Job, body: ExecBody) -> tuple[int, int]:
    """The worker and the rank that were asked for, if they run."""
    if job.seatless and not job.final:
        raise Conflict(f"The job {job.id} has no ranks of its own.", f"`muster ls --parent {job.id}` lists its jobs.")
    if not job.active or job.attempt is None:
        raise Conflict(
            f"The job {job.id} is {job.phase}: a command runs only beside a job that is running.",
            f"`muster runs artifacts {job.id}` lists what it saved, `muster logs {job.id}` prints its output.",
        )
    workers, nproc = job.attempt.workers, ranks_per_node(job.spec)
    if body.rank is not None and body.rank >= len(workers) * nproc:
        raise Invalid(f"{job.id} has {len(workers) * nproc} ranks; there is no rank {body.rank}.", "Count from 0.")
    worker = body.worker if body.worker is not None else (body.rank or 0) // nproc
    if worker >= len(workers):
        raise Invalid(f"{job.id} has {len(workers)} workers; there is no worker {worker}.", "Count from 0.")
    rank = body.rank if body.rank is not None else worker * nproc
    if rank // nproc != worker:
        raise Invalid(f"Rank {rank} of {job.id} is of worker {rank // nproc}, not {worker}.", "Give one of the two.")
    if (state := workers[worker].state) != "running":
        error = NotStarted if state == "starting" and job.phase != "stopping" else Conflict
        raise error(f"Worker {worker} of {job.id} is {state}.", f"See `muster status {job.id}`; try again.")
    return worker, rank


def _check_allowed(leader: Leader, caller: Identity, job: Job) -> None:
    if leader.settings.exec == "off":
        raise NotAllowed('Exec is off on this server (`exec = "off"` in config.toml).', "Ask whoever runs it.")
    if job.trusted and not caller.superuser and not leader.settings.trust_members:
        raise NotAllowed(
            f"{job.id} runs with the server's rights, because an administrator submitted it.",
            "An administrator may run a command in it; a job that you submit runs with yours.",
        )


def _record(leader: Leader, one: Exec, job: Job, node: str) -> None:
    """Writes the session into the event log. A secret in the command is masked, as in logs."""
    masker = Masker(leader.secret_values(job.project, job.spec.secrets))
    words = ["muster", "cp", one.request["copy"]] if one.request["copy"] else []
    command = masker.mask(shlex.join([*words, *one.request["command"]]))[:_TOLD]
    opened = ExecOpened(one.id, one.worker, node, command, one.request["tty"] is not None)
    event = Event(opened, leader.clock.now(), one.user, one.project, one.job, one.attempt)
    leader.propose(lambda state: Entry([event]))


async def _of_user(leader: Leader, caller: Identity, ref: str, ident: str) -> Exec:
    """The session, if the caller opened it and still may; asked each time, because rights may be taken away."""
    job = await run_in_threadpool(find_job, leader, caller, ref, "member")
    return leader.execs.of_user(ident, job.id, caller.user)


async def _body(request: Request) -> bytes:
    body = await request.body()
    if len(body) > CHUNK:
        raise Invalid(f"{len(body)} bytes were sent at once.", f"Send at most {CHUNK}.")
    return body


async def _cut(request: Request) -> None:
    """Returns when the client's connection was cut."""
    while (await request.receive())["type"] != "http.disconnect":
        await asyncio.sleep(0)
