"""Liveness, readiness and status of the server."""

from __future__ import annotations

import os
from dataclasses import asdict, replace
from typing import Any, Final, cast
from urllib.parse import urlsplit

from fastapi import Response

from muster import __version__
from muster.api.health import Alive, FollowerLag, Readiness, ServerHealth, ServerView
from muster.server.context import Caller, Leading, Serving
from muster.server.typed_routes import needs, typed_router

router = typed_router(tags=["server"])

SHOWN: Final = 100  # entries that were set aside
HIDDEN: Final = "in trouble; administrators see why"


@router.get("/healthz", openapi_extra=needs("nobody"))
async def healthz() -> Alive:
    return {"status": "ok"}


_NOT_READY: Final[dict[str, Any]] = {
    "description": "this server does not hold the lease",
    "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Readiness"}}},
}


@router.get("/readyz", responses={503: _NOT_READY}, openapi_extra=needs("nobody"))
async def readyz(service: Serving, response: Response) -> Readiness:
    lease = service.lease
    response.status_code = 200 if service.ready else 503
    return {
        "ready": service.ready,
        "leader": service.leads,
        "holder": lease.holder if lease else "",
        "urls": list(lease.urls) if lease else [],
    }


@router.get("/v1/health", openapi_extra=needs("anyone"))
def health(leader: Leading, caller: Caller) -> ServerHealth:
    """How far the followers are behind the event log, what was set aside, and what waits to be delivered.

    `healthy` is for everybody. Error texts may quote data of any project, so that only administrators see them.
    """
    admin = caller.superuser
    lags = [follower.lag() for follower in leader.followers]
    aside = leader.store.set_aside(SHOWN if admin else 1)
    outbox = leader.outbox.status() if leader.outbox is not None else None
    troubled = any(lag.trouble for lag in lags)
    shown = [lag if admin or not lag.trouble else replace(lag, trouble=HIDDEN) for lag in lags]
    return {
        "version": leader.store.version(),
        "healthy": not (troubled or aside or (outbox and outbox["given_up"])),
        "followers": [cast(FollowerLag, asdict(lag)) for lag in shown],
        "outbox": outbox if admin else None,
        "set_aside": [
            {
                "id": one.id,
                "time": one.time,
                "source": one.source,
                "run": one.run,
                "attempt": one.attempt,
                "error": one.error,
                "bytes": len(one.data),
            }
            for one in (aside if admin else ())
        ],
        "admission": leader.external.status() if admin else [],
        "advisories": leader.inspector.advisories.status() if admin else None,
    }


@router.get("/v1/server", openapi_extra=needs("anyone"))
def server(service: Serving, leader: Leading, caller: Caller) -> ServerView:
    return {
        "version": __version__,
        "started_at": service.started_at,
        "pid": os.getpid(),
        "store": urlsplit(leader.settings.url_of_store).scheme.partition("+")[0],
        "engines": [leader.engine.name],
        "home": str(leader.settings.home),
        "leader": service.leads,
    }
