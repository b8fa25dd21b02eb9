"""Metrics of the server, its work, its nodes and their devices, for Prometheus."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from importlib import import_module
from typing import Annotated, Final, Literal

from fastapi import Header, Query, Request
from fastapi.responses import StreamingResponse

from muster.monitor.exposition import CONTENT_TYPE
from muster.server.auth import authenticate
from muster.server.context import Serving, leader_of
from muster.server.open_metrics import is_open
from muster.server.typed_routes import needs, typed_router

router = typed_router(tags=["server"])

Part = Literal["server", "nodes", "devices", "dcgm"]
PARTS: Final[tuple[Part, ...]] = ("server", "nodes", "devices", "dcgm")


@router.get("/metrics", response_class=StreamingResponse, openapi_extra=needs("auditor"))
def prometheus(
    request: Request,
    service: Serving,
    part: Annotated[list[Part] | None, Query(description="only these parts; all if none is given")] = None,
    authorization: Annotated[str | None, Header(max_length=500)] = None,
) -> StreamingResponse:
    """In Prometheus' text format; docs/prometheus.md lists the metrics."""
    opened = is_open(service.settings, request.scope)
    leader = None if opened and not service.ready else leader_of(request)
    if not opened and leader is not None:
        authenticate(authorization, leader.store.state(), leader.clock.now()).need_whole_view()
    text = import_module("muster.server.prometheus.page")  # prometheus-client takes a while to load
    return StreamingResponse(_sent(text.page(leader, service.requests, part or PARTS)), media_type=CONTENT_TYPE)


async def _sent(pieces: Sequence[bytes]) -> AsyncIterator[bytes]:
    for piece in pieces:
        if piece:
            yield piece
