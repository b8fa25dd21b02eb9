"""Counts every answered request by its route, method and class of status, and times the beginning of the answer."""

from __future__ import annotations

import time
from typing import Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from muster.control.counters import Durations, Tally
from muster.monitor.families import OTHER

BOUNDS: Final = (0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)  # seconds
_METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_MLFLOW: Final = "/mlflow"


class Requests:
    """Changed by the event loop's thread alone."""

    def __init__(self) -> None:
        self.answers, self.times = Tally(), Durations(BOUNDS)


class MeterRequests:
    """The outermost middleware. A stream counts when it begins."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began = time.perf_counter()
        counted: Requests = scope["app"].state.service.requests  # now: MLflow's own server puts itself there

        async def metered(message: Message) -> None:
            if message["type"] == "http.response.start":
                route = _route(scope)
                method = scope["method"] if scope["method"] in _METHODS else OTHER
                counted.answers.add((route, method, f"{message['status'] // 100}xx"))
                counted.times.observe((route,), time.perf_counter() - began)
            await send(message)

        await self._app(scope, receive, metered)


def _route(scope: Scope) -> str:
    """The template of the path; never the path itself, which anybody may make up."""
    path = getattr(scope.get("route"), "path", None)
    if isinstance(path, str):
        return path
    return _MLFLOW if scope.get("root_path", "").startswith(_MLFLOW) else OTHER
