"""The worker's side: launchers ship what their ranks reported and fetch the secrets that their job names."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Header, Request, Response
from starlette.concurrency import run_in_threadpool

from muster.core.errors import Invalid, NotFound, Unauthenticated
from muster.server.context import Leading, Serving
from muster.wire import Batch

router = APIRouter(prefix="/v1/ingest", tags=["workers"])


def attempt(leader: Leading, authorization: Annotated[str | None, Header(max_length=500)] = None) -> tuple[str, int]:
    """The attempt that the launcher's token speaks for."""
    found = leader.keyring.attempt_of((authorization or "").removeprefix("Bearer ").strip())
    if found is None:
        raise Unauthenticated("The attempt's token is not valid.")
    return found


Speaking = Annotated[tuple[str, int], Depends(attempt)]


@router.post(
    "", responses={410: {"description": "the attempt is unknown: its launcher should stop its ranks and leave"}}
)
async def ingest(request: Request, leader: Leading, service: Serving, speaking: Speaking) -> Response:
    """Stores a batch (see `muster.wire.Batch`) once, however often it is sent."""
    body = await request.body()
    try:
        batch = Batch.decode(body)
    except ValueError as error:
        raise Invalid(f"The body is not a batch: {error}.") from error
    job, number = speaking
    try:
        reply = await run_in_threadpool(leader.ingest.accept, job, number, batch)
    except NotFound as error:
        return Response(error.message, status_code=410)
    if batch.pieces:
        service.hub.tell([job])
    return Response(reply.to_json(), media_type="application/json")


@router.get("/secrets")
def secrets(leader: Leading, speaking: Speaking) -> dict[str, str]:
    """The values of the secrets that the job names, while its attempt is the current one and nowhere near its end."""
    job_id, number = speaking
    job = leader.store.job(job_id)
    if job is None or not job.active or job.attempt is None or job.attempt.number != number:
        raise NotFound("The attempt is not running.")
    values = {}
    for name in job.spec.secrets:
        cipher = leader.store.secret(job.project, name)
        if cipher is None:
            raise NotFound(f"The secret {name} is gone.")
        values[name] = leader.keyring.unseal(cipher)
    return values
