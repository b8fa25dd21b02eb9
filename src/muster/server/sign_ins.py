"""Records failed sign-ins as events: the first of an address at once, the others once a minute as a count.

The event log grows by a bounded number of events per minute, for any number of failures and addresses. Only
administrators see these events: they belong to no project.
"""

from __future__ import annotations

import base64
import ipaddress
import re
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from muster.control.background import Background
from muster.core.errors import MusterError
from muster.core.event import Event
from muster.core.server_events import AuthFailed
from muster.server.web.credentials import forged
from muster.store.base import Entry
from muster.store.commit import Commit

EVERY: Final = 60.0  # seconds
MOST: Final = 50  # addresses that are counted separately in that time
_TOKEN: Final = re.compile(r"mst_([0-9a-f]{1,32})_")
_ELSEWHERE: Final = "others"  # all further addresses


@dataclass(slots=True)
class _Failures:
    since: float
    count: int = 0  # since the last event
    token: str = ""  # id of a known token that was tried without success


class SignIns:
    """`known`: whether a token with this id was ever created."""

    def __init__(
        self, commit: Commit, now: Callable[[], float], known: Callable[[str], bool], may_act: Callable[[], bool]
    ) -> None:
        self._commit, self._now, self._known = commit, now, known
        self._failures: dict[str, _Failures] = {}
        self._lock = threading.Lock()
        self._background = Background("sign-ins", self.step, may_act, lambda took: EVERY)

    def start(self) -> None:
        self._background.start()

    def close(self) -> None:
        self._background.close(once_more=True)

    def failed(self, address: str, authorization: str) -> None:
        """Quick: the request that failed waits for no disk."""
        identity = _token_id(authorization)
        token = identity if identity and self._known(identity) else ""
        with self._lock:
            name = address if address in self._failures or len(self._failures) < MOST else _ELSEWHERE
            first = name not in self._failures
            one = self._failures.setdefault(name, _Failures(self._now()))
            one.count += 1
            one.token = token or one.token
            event = self._event(name, one) if first else None
        if event is not None:
            with suppress(MusterError):  # this server is stopping: nothing is recorded any more
                self._commit.submit(lambda state: Entry([event]))

    def step(self) -> None:
        """Records what was counted, and starts to count from 0."""
        with self._lock:
            found, self._failures = self._failures, {}
            events = [self._event(name, one) for name, one in found.items() if one.count]
        if events:
            self._commit.submit(lambda state: Entry(events)).result()

    def _event(self, address: str, one: _Failures) -> Event:
        failed = AuthFailed(address, one.count, one.token, one.since)
        one.count = 0
        return Event(failed, self._now())


class WatchSignIns:
    """Watches all answers: a 401 to a request with a token, or with a forged cookie, is a failed sign-in."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        given = _header(scope, b"authorization") if scope["type"] == "http" else ""
        if scope["type"] != "http" or not (given or _header(scope, b"cookie")):
            await self._app(scope, receive, send)
            return

        async def watched(message: Message) -> None:
            if message["type"] == "http.response.start" and message["status"] == 401:
                leader = scope["app"].state.service.leader
                if leader is not None and (given or forged(scope, leader.sessions)):
                    leader.sign_ins.failed(address_of(scope), given)
            await send(message)

        await self._app(scope, receive, watched)


def _header(scope: Mapping[str, object], name: bytes) -> str:
    headers = scope.get("headers")
    found = next((value for key, value in headers if key == name), b"") if isinstance(headers, list | tuple) else b""
    return bytes(found).decode("latin-1")


def address_of(scope: Scope) -> str:
    """The client's address. A proxy on this machine passes on the address behind it, which may be any text."""
    try:
        return str(ipaddress.ip_address((scope.get("client") or ("", 0))[0]))
    except ValueError:
        return "unknown"


def _token_id(authorization: str) -> str:
    """The public part of a token, as bearer or as the password of Basic."""
    scheme, _, given = authorization.partition(" ")
    if scheme.lower() == "basic":
        try:
            given = base64.b64decode(given.strip(), validate=True).decode("latin-1")
        except ValueError:  # not Base64, or not ASCII
            return ""
    found = _TOKEN.search(given[:500])
    return found[1] if found else ""
