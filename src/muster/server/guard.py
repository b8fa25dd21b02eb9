"""Middleware in front of every request: checks the host, the token and the size.

It uses only the headers. Nothing of a body is read without a valid token.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from muster.api.errors import ErrorView
from muster.core.errors import Invalid, MusterError, TooMany, Unauthenticated
from muster.server.answers import answer, error_answer
from muster.server.auth import authenticate, check_finance
from muster.server.mlflow.caller import bearer
from muster.server.open_metrics import is_open
from muster.server.service import Service
from muster.server.sizes import HEADERS, UNREAD, bounded, has_body, too_large
from muster.server.web.credentials import LONGEST, OF_ATTEMPTS, SIGN_IN, check_sign_in, identify
from muster.server.web.site import SIGN_IN_ROUTES, is_page
from muster.track.mlflow.faults import Fault, fault_of

CONNECTION: Final = "muster.connection"  # in the scope: the connection of the request; see `protocol`
PUBLIC: Final = frozenset({"/healthz", "/readyz", "/mlflow/health", "/mlflow/version"})  # under any host
# The API's own description contains no user data.
_OPEN: Final = frozenset({"/docs", "/openapi.json"}) | SIGN_IN_ROUTES
# MLflow calls that read many rows, by the last part of their path.
_HEAVY: Final = re.compile(r"/mlflow/(?:.*/)?(search|query|graphql|get-history|calculate)[^/]*")
_MLFLOW: Final = re.compile(r"/mlflow(/.*)?", re.DOTALL)
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")

_COMMON: Final = [(b"x-content-type-options", b"nosniff"), (b"referrer-policy", b"no-referrer")]
_OWN: Final = [
    *_COMMON,
    (b"x-frame-options", b"DENY"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
    (b"cache-control", b"no-store"),
]


class Guard:
    def __init__(self, app: ASGIApp, service: Service) -> None:
        self._app, self._service = app, service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers: dict[bytes, bytes] = dict(reversed(scope["headers"]))  # of repeated headers the first, as in routes
        path: str = scope["path"]
        receive, unread = _watched(receive, headers)
        send = _labelled(path, send, lambda: unread() or (path in PUBLIC and has_body(headers)))
        refusal = self._refusal(scope, path, headers)
        if refusal is not None:
            refusal.headers["connection"] = "close"
            await refusal(scope, receive, send)
            return
        receive = bounded(scope, headers, receive)
        if not _HEAVY.fullmatch(path):
            await self._app(scope, receive, send)
            return
        try:
            async with self._service.read_slots.take(scope["state"]["user"]):
                await self._app(scope, receive, send)
        except TooMany as error:
            await _refused(path, error)(scope, receive, send)

    def _refusal(self, scope: Scope, path: str, headers: dict[bytes, bytes]) -> Response | None:
        if len(scope["headers"]) > HEADERS:
            return answer(431, _error("too_large", f"The request has more than {HEADERS} headers.", "Send fewer."))
        if _CONTROL.search(path):  # the `$` of a route ignores a final line break, the access rules don't
            return _refused(path, Invalid("The path holds a control character.", "Send it without."))
        if path in PUBLIC:
            return None
        if not self._service.hosts.allow(headers.get(b"host", b"").decode("latin-1")):
            message = "The server is not known under the name that the Host header gives."
            hint = "Add the name to `allowed_hosts` in the server's config.toml, or ask by address."
            return answer(421, _error("wrong_host", message, hint))
        try:
            if path == SIGN_IN and scope["method"] == "POST":
                check_sign_in(scope, headers)
            elif has_body(headers) or not self._is_open(scope, path):
                scope.setdefault("state", {})["user"] = self._user(scope, path, headers)
                connection = scope.get("extensions", {}).get(CONNECTION)
                if connection is not None:
                    connection.mark_authenticated()
        except MusterError as error:
            return _refused(path, error)
        words = too_large(scope, headers)
        return answer(413, _error("too_large", words, "Send it in smaller parts.")) if words else None

    def _is_open(self, scope: Scope, path: str) -> bool:
        return path in _OPEN or is_page(scope) or is_open(self._service.settings, scope)

    def _user(self, scope: Scope, path: str, headers: dict[bytes, bytes]) -> str:
        """The user of the token; "" for an attempt's token. Each route checks again what it needs itself."""
        leader, given = self._service.leader, headers.get(b"authorization", b"")[: LONGEST + 1].decode("latin-1")
        if leader is None or not self._service.leads:
            raise self._service.not_leading()
        if len(given) > LONGEST:
            raise Unauthenticated("The token is not valid.")
        if OF_ATTEMPTS.fullmatch(path):
            if leader.keyring.attempt_of(given.removeprefix("Bearer ").strip()) is None:
                raise Unauthenticated("The attempt's token is not valid.")
            return ""
        if _MLFLOW.fullmatch(path):
            caller = authenticate(bearer(given), leader.store.state(), leader.clock.now())
        else:
            caller = identify(scope, leader)
        check_finance(caller, scope["method"], path)
        return caller.user


def _refused(path: str, error: MusterError) -> Response:
    """The error in the format of the API that was called: MLflow's or Muster's."""
    if not _MLFLOW.fullmatch(path):
        return error_answer(error)
    fault = Fault(str(error), "TEMPORARILY_UNAVAILABLE") if isinstance(error, TooMany) else fault_of(error)
    headers = {"WWW-Authenticate": 'Basic realm="Muster: any name, and a token as the password"'}
    status = 429 if isinstance(error, TooMany) else fault.status
    given = headers if status == 401 else {"Retry-After": "1"} if status in (429, 503) else None
    return Response(fault.to_json(), status, given, "application/json")


def _watched(receive: Receive, headers: dict[bytes, bytes]) -> tuple[Receive, Callable[[], bool]]:
    """`receive`, and whether the body is longer than `UNREAD` bytes and not read to its end.

    A shorter rest would fit into the limit of the next request's headers.
    """
    declared = headers.get(b"content-length", b"0")
    left = b"transfer-encoding" in headers or not declared.isdigit() or int(declared[:19]) > UNREAD

    async def watched() -> Message:
        nonlocal left
        message = await receive()
        left = left and bool(message.get("more_body", False))
        return message

    return watched, lambda: left


def _labelled(path: str, send: Send, close: Callable[[], bool]) -> Send:
    """Adds security headers to answers.

    `close`: whether the connection ends with this answer; called when the answer begins.
    """
    labels = _COMMON if _MLFLOW.fullmatch(path) else _OWN

    async def labelled(message: Message) -> None:
        if message["type"] == "http.response.start":
            given: list[tuple[bytes, bytes]] = list(message.get("headers", ()))
            names = {name.lower() for name, _ in given}
            if b"etag" in names:
                names.add(b"cache-control")  # content with a digest may be cached and revalidated
            given += [(name, value) for name, value in labels if name not in names]
            if close() and b"connection" not in names:
                given.append((b"connection", b"close"))
            message = {**message, "headers": given}
        await send(message)

    return labelled


def _error(code: str, message: str, hint: str) -> ErrorView:
    return {"code": code, "message": message, "hint": hint}
