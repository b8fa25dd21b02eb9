"""The content of a picture, or of a large histogram or table, that a run recorded."""

from __future__ import annotations

from typing import Annotated

from fastapi import Path, Request, Response
from fastapi.responses import StreamingResponse
from sqlalchemy import select

from muster.core.errors import NotFound
from muster.server.content import Served, send
from muster.server.context import Caller, Leading, Tracked
from muster.server.quarantine import Why, check_open
from muster.server.record_context import RunRef, find_run
from muster.server.typed_routes import needs, typed_router
from muster.store.codec import loads
from muster.store.record_tables import media

router = typed_router(prefix="/v1/runs", tags=["content"])

Ident = Annotated[int, Path(ge=0, lt=2**63, description="`id` in the list of the run's media")]


@router.get("/{ref}/media/{ident}", response_class=StreamingResponse, openapi_extra=needs("viewer"))
def get_medium(
    ref: RunRef, ident: Ident, request: Request, leader: Leading, track: Tracked, caller: Caller, why: Why = None
) -> Response:
    """The content of a medium that has a `digest`. Quarantined content is for administrators, with a reason."""
    run = find_run(leader, track, caller, ref)
    with track.db.reading() as connection:
        row = connection.execute(select(media).where(media.c.run == run.id, media.c.id == ident)).one_or_none()
    doc = loads(row.doc) if row is not None else {}
    digest = doc.get("digest")
    size = track.blobs.size(digest) if digest else None
    if row is None or digest is None or size is None:
        raise NotFound(f"The run {run.id} has no content of a medium {ident}.", f"See GET /v1/runs/{run.id}/media.")
    check_open(track, caller, digest, why)
    served = Served(digest, size, row.name, str(doc.get("mime") or ""), lambda a, b: track.blobs.open(digest, a, b))
    return send(request, served)
