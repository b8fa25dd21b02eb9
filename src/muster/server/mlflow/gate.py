"""The entry point of /mlflow: authenticates, answers Muster's own calls, and forwards the rest to MLflow's server."""

from __future__ import annotations

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

from muster.core.errors import Invalid, MusterError
from muster.core.json_text import parse
from muster.server.headers import adding
from muster.server.mlflow import mount, spans, transfer
from muster.server.mlflow.audit import event_for
from muster.server.mlflow.caller import context_for, leader_of, need_member, need_superuser
from muster.server.mlflow.rights import right_for
from muster.server.service import Service
from muster.track.mlflow.addresses import check_addresses
from muster.track.mlflow.calls import CALLS, Call, needs_mlflow
from muster.track.mlflow.context import CURRENT, MlflowContext
from muster.track.mlflow.faults import Fault, fault_of

log = logging.getLogger("muster.server")

_APIS: Final = ("/api/2.0/mlflow/", "/ajax-api/2.0/mlflow/")
_SAFE: Final = ("GET", "HEAD", "OPTIONS")
_HEADERS: Final = {"X-Content-Type-Options": "nosniff"}
# Bodies that are not parsed: files, and paths for administrators only. All other bodies except spans are JSON.
_RAW: Final = re.compile(r"/ajax-api/2\.0/mlflow/upload-artifact|/gateway/.*")
# MLflow's pages have no inline scripts. Charts compile code, which needs `unsafe-eval`; styles are inline.
_POLICY: Final = (
    "default-src 'self'; script-src 'self' 'unsafe-eval'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data: blob:; font-src 'self' data:; media-src 'self' data: blob:; connect-src 'self' data: blob:; "
    "worker-src 'self' blob:; frame-src 'self' blob:; object-src 'none'; base-uri 'self'; form-action 'self'; "
    "frame-ancestors 'self'"
)
_PAGE: Final = {  # in addition to the headers of every answer
    b"content-security-policy": _POLICY.encode(),
    b"x-frame-options": b"SAMEORIGIN",
    b"referrer-policy": b"same-origin",
}


class Gate:
    """An ASGI application to mount; it finds its server with each request."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1000})
            return
        send = adding(send, _PAGE)
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
        """The answer; None if MLflow's own server must answer."""
        if path in ("/health", "/version"):
            return Response("OK" if path == "/health" else mount.version(), media_type="text/html")
        _check_origin(request)
        service: Service = request.scope["app"].state.service
        right = right_for(request.method, path)
        context = await to_thread.run_sync(_context, service, request.headers.get("authorization"), right != "read")
        CURRENT.set(context)
        if right != "read":
            need_member(context)
        if right == "admin":
            need_superuser(context)
        if (found := transfer.route(request, path)) is not None:
            return await found(context)
        name = next((path[len(api) :] for api in _APIS if path.startswith(api)), None)
        call = CALLS.get((request.method, name)) if name is not None else None
        if call is None or name is None:
            await _check_forwarded(request, path)
            return None
        given = _query(request, call) if request.method == "GET" else await _body(request, name)
        if needs_mlflow(name, given):
            await to_thread.run_sync(check_addresses, path, given)
            return None
        return Response(
            await to_thread.run_sync(call.run, context, given), media_type="application/json", headers=_HEADERS
        )

    async def _forward(self, scope: Scope, receive: Receive, send: Send, request: Request) -> None:
        try:
            service: Service = scope["app"].state.service
            passphrase = leader_of(service).keyring.passphrase("mlflow gateway")
            app = await to_thread.run_sync(mount.load, CURRENT.get().track, passphrase)
            await to_thread.run_sync(_note, CURRENT.get(), request.method, _path(scope))
        except (Fault, MusterError) as error:
            await _refusal(error if isinstance(error, Fault) else fault_of(error))(scope, receive, send)
            return
        body = getattr(request, "_body", None)
        await app(scope, receive if body is None else _again(body, receive), send)


def _context(service: Service, authorization: str | None, writing: bool) -> MlflowContext:
    return context_for(service, authorization, writing=writing)


def _note(context: MlflowContext, method: str, path: str) -> None:
    told = event_for(context, method, path)
    if told is not None:
        context.track.db.write(events=[told])


def _path(scope: Scope) -> str:
    """The path under /mlflow."""
    path: str = scope["path"]
    return path[len(scope.get("root_path", "")) :] or "/"


async def _check_forwarded(request: Request, path: str) -> None:
    """Refuses requests with an address that is not Muster's, in the query or the body, before they are forwarded."""
    check_addresses(path, parse_qs(request.url.query, keep_blank_values=True))
    if _RAW.fullmatch(path):
        return
    if path == spans.PATH:
        await _unpack_spans(request)
    elif body := await request.body():  # also of a GET: MLflow reads it if there is no query
        _check_json(request)
        await to_thread.run_sync(lambda: check_addresses(path, _json(body)))


async def _unpack_spans(request: Request) -> None:
    """Replaces the body by its unpacked form, without an encoding."""
    json = _kind(request) == "application/json"
    encoding = ", ".join(request.headers.getlist("content-encoding"))
    body = await to_thread.run_sync(spans.unpacked, await request.body(), encoding, json)
    if json:
        await to_thread.run_sync(_json, body)
    request._body = body
    kept = [one for one in request.scope["headers"] if one[0] not in (b"content-encoding", b"content-length")]
    request.scope["headers"] = [*kept, (b"content-length", str(len(body)).encode())]


def _check_origin(request: Request) -> None:
    """Blocks writes from other sites: a browser that remembers Basic credentials sends them with those, too."""
    origin = request.headers.get("origin")
    if origin and request.method not in _SAFE and urlsplit(origin).netloc != request.headers.get("host"):
        raise Fault("Cross-origin request blocked", "PERMISSION_DENIED")


def _query(request: Request, call: Call) -> dict[str, Any]:
    found = parse_qs(request.url.query, keep_blank_values=True)
    return {name: values if call.is_list(name) else values[-1] for name, values in found.items()}


async def _body(request: Request, name: str) -> dict[str, Any]:
    _check_json(request)
    text = await request.body()
    found = await to_thread.run_sync(_json, text or b"{}")
    if name.startswith("experiments/"):
        await to_thread.run_sync(check_addresses, name, found)
    if not isinstance(found, dict):
        raise Fault("The request's body must be a JSON object.", "BAD_REQUEST")
    return found


def _check_json(request: Request) -> None:
    if _kind(request) != "application/json":
        raise Fault("Bad Request. Content-Type must be one of ['application/json'].")


def _kind(request: Request) -> str:
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


def _json(text: bytes) -> Any:
    """Parses JSON, twice for old clients that encode twice, as MLflow does. Run it in a thread: it may take a while."""
    try:
        found = parse(text)
        return parse(found) if isinstance(found, str) else found
    except Invalid as error:
        raise Fault(f"The request's body can't be read. {error.message}", "BAD_REQUEST") from None


def _refusal(fault: Fault) -> Response:
    headers: Mapping[str, str] = _HEADERS
    if fault.code == "UNAUTHENTICATED":
        headers = {**_HEADERS, "WWW-Authenticate": 'Basic realm="Muster: any name, and a token as the password"'}
    return Response(fault.to_json(), fault.status, headers, "application/json")


def _again(body: bytes, receive: Receive) -> Receive:
    """A `receive` that returns a body again that was already read."""
    sent = False

    async def again() -> Any:
        nonlocal sent
        if sent:
            return await receive()
        sent = True
        return {"type": "http.request", "body": body, "more_body": False}

    return again
