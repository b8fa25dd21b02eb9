"""Whether the server lives, whether it may be asked, and what it is."""

from __future__ import annotations

import os
from urllib.parse import urlsplit

from fastapi import APIRouter, Response

from muster import __version__
from muster.server.context import Asking, Leading, Serving
from muster.server.views import View

router = APIRouter(tags=["server"])


@router.get("/healthz")
async def healthz() -> View:
    return {"status": "ok"}


@router.get("/readyz", responses={503: {"description": "this server does not hold the lease"}})
async def readyz(service: Serving, response: Response) -> View:
    lease = service.lease
    response.status_code = 200 if service.ready else 503
    return {
        "ready": service.ready,
        "leader": service.leads,
        "holder": lease.holder if lease else "",
        "urls": list(lease.urls) if lease else [],
    }


@router.get("/v1/server")
def server(service: Serving, leader: Leading, asking: Asking) -> View:
    return {
        "version": __version__,
        "started_at": service.started_at,
        "pid": os.getpid(),
        "store": urlsplit(leader.settings.url_of_store).scheme.partition("+")[0],
        "engines": [leader.engine.name],
        "home": str(leader.settings.home),
        "leader": service.leads,
    }
