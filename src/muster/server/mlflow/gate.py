"""The door of /mlflow: says who asks, answers what Muster answers itself, and hands the rest to MLflow's own server."""

from __future__ import annotations

import json
import logging
import re
import uuid
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

from anyio import to_thread
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from muster.core.errors import MusterError
from muster.server.mlflow import mount, transfer
from muster.server.mlflow.asker import desk_for, need_superuser
from muster.server.mlflow.audit import event_for
from muster.server.service import Service
from muster.track.mlflow.calls import CALLS, Call, needs_mlflow
from muster.track.mlflow.desk import CURRENT, Desk
from muster.track.mlflow.faults import Fault, fault_of
from muster.track.mlflow.limits import BATCH_BYTES

log = logging.getLogger("muster.server")

_APIS: Final = ("/api/2.0/mlflow/", "/ajax-api/2.0/mlflow/")
_SAFE: Final = ("GET", "HEAD", "OPTIONS")
# Parts of MLflow's server that hold other services' keys, call out, or run code: they know nothing of projects.
_ADMIN: Final = (
    "gateway",
    "webhooks",
    "mcp",
    "jobs",
    "assistant",
    "demo",
    "invocations",
    "prompt-optimization",
    "scorer",
)
_READING: Final = re.compile(r"(?:search|query|list|get|batchget|graphql|calculate)(?!-or-create)(?:[-_].*)?")
_HEADERS: Final = {"X-Content-Type-Options": "nosniff"}


class Gate:
    """An application to mount; which server it belongs to is found with each request."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1000})
            return
        request = Request(scope, receive)
        try:
            answer = await self._answer(request, _path(scope))
        except Fault as fault:
            answer = _refusal(fault)
        except MusterError as error:
            answer = _refusal(fault_of(error))
        except (HTTPException, ClientDisconnect):
            raise
        except Exception as error:
            mark = uuid.uuid4().hex[:12]
            log.error("bug %s in %s %s", mark, request.method, request.url.path, exc_info=error)
            answer = _refusal(Fault(f"Something went wrong inside Muster (mark {mark}).", "INTERNAL_ERROR"))
        if answer is not None:
            await answer(scope, receive, send)
            return
        await self._forward(scope, receive, send, request)

    async def _answer(self, request: Request, path: str) -> Response | None:
        """None for what MLflow's own server answers."""
        if path in ("/health", "/version"):
            return Response("OK" if path == "/health" else mount.version(), media_type="text/html")
        _check_origin(request)
        service: Service = request.scope["app"].state.service
        writing = request.method not in _SAFE and not _reads(path)
        desk = await to_thread.run_sync(_desk, service, request.headers.get("authorization"), writing)
        CURRENT.set(desk)
        if (found := transfer.route(request, path)) is not None:
            return await found(desk)
        name = next((path[len(api) :] for api in _APIS if path.startswith(api)), None)
        call = CALLS.get((request.method, name)) if name is not None else None
        if call is None or name is None:
            if any(word in path for word in _ADMIN) and "/api/" in path.replace("ajax-api", "api"):
                need_superuser(desk)
            return None
        given = _query(request, call) if request.method == "GET" else await _body(request, name)
        if needs_mlflow(name, given):
            return None
        return Response(
            await to_thread.run_sync(call.run, desk, given), media_type="application/json", headers=_HEADERS
        )

    async def _forward(self, scope: Scope, receive: Receive, send: Send, request: Request) -> None:
        try:
            app = await to_thread.run_sync(mount.load, CURRENT.get().track)
            await to_thread.run_sync(_note, CURRENT.get(), request.method, _path(scope))
        except (Fault, MusterError) as error:
            await _refusal(error if isinstance(error, Fault) else fault_of(error))(scope, receive, send)
            return
        body = getattr(request, "_body", None)
        await app(scope, receive if body is None else _again(body, receive), send)


def _desk(service: Service, authorization: str | None, writing: bool) -> Desk:
    return desk_for(service, authorization, writing=writing)


def _note(desk: Desk, method: str, path: str) -> None:
    told = event_for(desk, method, path)
    if told is not None:
        desk.track.book.write(events=[told])


def _path(scope: Scope) -> str:
    """As it is under /mlflow."""
    path: str = scope["path"]
    return path[len(scope.get("root_path", "")) :] or "/"


def _reads(path: str) -> bool:
    """MLflow searches by POST, too."""
    last = path.rstrip("/").rpartition("/")[2].replace("batchGet", "batchget-")
    return _READING.fullmatch(last) is not None


def _check_origin(request: Request) -> None:
    """A browser that remembers Basic credentials sends them for other sites, too: those may not write."""
    origin = request.headers.get("origin")
    if origin and request.method not in _SAFE and urlsplit(origin).netloc != request.headers.get("host"):
        raise Fault("Cross-origin request blocked", "PERMISSION_DENIED")


def _query(request: Request, call: Call) -> dict[str, Any]:
    found = parse_qs(request.url.query, keep_blank_values=True)
    return {name: values if call.is_list(name) else values[-1] for name, values in found.items()}


async def _body(request: Request, name: str) -> dict[str, Any]:
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise Fault("Bad Request. Content-Type must be one of ['application/json'].")
    text = await request.body()
    try:
        found = json.loads(text or b"{}")
        if isinstance(found, str):  # some old clients encode twice
            found = json.loads(found)
    except ValueError:
        raise Fault("The request's body is not valid JSON.", "BAD_REQUEST") from None
    if not isinstance(found, dict):
        raise Fault("The request's body must be a JSON object.", "BAD_REQUEST")
    if name == "runs/log-batch" and len(text) > BATCH_BYTES:
        raise Fault(
            f"Batched logging API requests must be at most {BATCH_BYTES} bytes, got a request of size {len(text)}."
        )
    return found


def _refusal(fault: Fault) -> Response:
    headers: Mapping[str, str] = _HEADERS
    if fault.code == "UNAUTHENTICATED":
        headers = {**_HEADERS, "WWW-Authenticate": 'Basic realm="Muster: any name, and a token as the password"'}
    return Response(fault.to_json(), fault.status, headers, "application/json")


def _again(body: bytes, receive: Receive) -> Receive:
    """The body once more, for whoever reads it after us."""
    sent = False

    async def again() -> Any:
        nonlocal sent
        if sent:
            return await receive()
        sent = True
        return {"type": "http.request", "body": body, "more_body": False}

    return again
