"""Checks every JSON answer of a test's server against the shape that its route declares, strictly.

A key that the shape does not have, a wrong type, or a number that JSON does not have makes the answer a 500 that says
so, and the server's log says so too (`live.stop_everything` looks there).
"""

from __future__ import annotations

import json
import sys
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from functools import cache
from typing import Any

from pydantic import ConfigDict, TypeAdapter, ValidationError

from live import WITHOUT_SHAPE
from muster.api.errors import ErrorAnswer
from muster.server import app
from muster.server.typed_routes import TypedRoute, routes_of

_STRICT = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Send = Callable[[Message], Awaitable[None]]
Asgi = Callable[[Scope, Callable[[], Awaitable[Message]], Send], Awaitable[None]]


@cache
def document() -> dict[str, Any]:
    """The OpenAPI document. It takes seconds, so it is made once, and not while tests are collected."""
    return app.create_app(None).openapi()  # type: ignore[arg-type]


def operations() -> dict[str, TypedRoute]:
    """The routes by what the document calls them: `GET /v1/jobs/{ref}`."""
    return {f"{method} {route.path_format}": route for route in all_routes() for method in route.methods or ()}


def all_routes() -> list[TypedRoute]:
    return routes_of(app.ROUTERS)


def check(shape: Any, body: bytes) -> str:
    """What is wrong with the answer; "" if nothing is."""
    try:
        json.loads(body, parse_constant=_refuse)
        adapter_of(shape).validate_json(b"[" + body + b"]")
    except ValidationError as error:
        found = error.errors(include_url=False, include_input=False)[:5]
        return "; ".join(f"{'.'.join(map(str, one['loc'][1:]))}: {one['msg']}" for one in found)
    except ValueError as error:
        return str(error)
    return ""


def checked(inner: Asgi) -> Asgi:
    """The application, with its answers checked."""

    async def outer(scope: Scope, receive: Callable[[], Awaitable[Message]], send: Send) -> None:
        if scope["type"] != "http" or not str(scope["path"]).startswith(("/v1", "/healthz", "/readyz")):
            await inner(scope, receive, send)
            return
        answer = _Answer(scope["method"], scope["path"], send)
        await inner(scope, receive, answer.send)

    return outer


class _Answer:
    def __init__(self, method: str, path: str, send: Send) -> None:
        self._method, self._path, self._send = method, path, send
        self._start: Message | None = None  # held back until the body is checked
        self._shape: Any = None
        self._body = b""

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            kind = dict(message.get("headers", ())).get(b"content-type", b"")
            self._shape = self._declared(message["status"], kind == b"application/json")
            if self._shape is not None and self._method != "HEAD":
                self._start = message
                return
        elif self._start is not None and message["type"] == "http.response.body":
            self._body += message.get("body", b"")
            if message.get("more_body"):
                return
            await self._finish(self._start)
            return
        await self._send(message)

    def _declared(self, status: int, is_json: bool) -> Any:
        if not is_json or 300 <= status < 400:
            return None
        route = match(self._method, self._path)
        if status >= 400 and not (route is not None and route.path == "/readyz"):
            return ErrorAnswer
        return route.shape if route is not None else None

    async def _finish(self, start: Message) -> None:
        wrong = check(self._shape, self._body)
        if wrong:
            told = f"{WITHOUT_SHAPE}: {self._method} {self._path} is no {self._shape}: {wrong}"
            print(told, file=sys.stderr, flush=True)  # noqa: T201
            self._body = json.dumps({"error": {"code": "shape", "message": told, "hint": ""}}).encode()
            length = [(b"content-length", str(len(self._body)).encode())]
            others = [(name, value) for name, value in start["headers"] if name != b"content-length"]
            start = {**start, "status": 500, "headers": others + length}
        await self._send(start)
        await self._send({"type": "http.response.body", "body": self._body})


def match(method: str, path: str, routes: Iterable[TypedRoute] | None = None) -> TypedRoute | None:
    """The route that answers; the first that fits, as in the application."""
    found = (one for one in routes or all_routes() if method in (one.methods or ()) and one.path_regex.match(path))
    return next(found, None)


@cache
def adapter_of(shape: Any) -> TypeAdapter[Any]:
    """In a list, because Pydantic lets no configuration be given for a typed dictionary itself."""
    return TypeAdapter(list[shape], config=_STRICT)


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")
