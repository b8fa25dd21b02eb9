"""Connections under limits: bytes and seconds for headers and bodies, and the number of connections.

uvicorn's own protocol, of either parser, is wrapped and not changed. Its fields show the state of a request: a new
cycle when the headers are complete, then a body that grows. Bytes that cause neither are counted.
"""

from __future__ import annotations

import asyncio
import importlib.util
import time
from collections.abc import Iterator
from typing import Any, Final, Literal, cast

from muster.server.guard import CONNECTION
from muster.server.limits import Limits

HEADER_BYTES: Final = 64 << 10  # per request, of everything that is not its body
LEAST_BYTES: Final = 1 << 10  # of a body in each `body_timeout`
_SLICE: Final = 16 << 10  # headers are passed on in parts of this size, so that the limit is noticed in time
_PIPELINED: Final = 16  # requests that may be sent ahead of their answers

Phase = Literal["request", "body", "answer", "idle"]


def parser() -> Literal["httptools", "h11"]:
    """The HTTP parser; httptools comes with the `fast` extra."""
    return "httptools" if importlib.util.find_spec("httptools") is not None else "h11"


class Connections:
    """All connections of a server. Those that have not shown a token are also kept by address, oldest first."""

    def __init__(self, limits: Limits, files: int) -> None:
        """`files`: how many files the process may open; some are left for the rest of it."""
        self.limits = limits
        self._most = min(limits.connections, max(16, files - 256))
        self._all: dict[Connection, None] = {}
        self._without_token: dict[str, dict[Connection, None]] = {}
        self._counts: dict[str, int] = {}

    def enter(self, new: Connection) -> bool:
        """Adds a connection if there is room. The oldest one without a token may be closed to make room."""
        if len(self._all) >= self._most and not _evict(max(self._without_token.values(), key=len, default={})):
            return False
        without_token = self._without_token.get(new.address, {})
        if len(without_token) >= self.limits.connections_without_token:
            _evict(without_token)
        # One address may not use everything: three quarters leave room for connections from other addresses.
        if self._counts.get(new.address, 0) >= self._most * 3 // 4 and not _evict(without_token):
            return False
        self._all[new] = None
        self._without_token.setdefault(new.address, {})[new] = None
        self._counts[new.address] = self._counts.get(new.address, 0) + 1
        return True

    def mark_authenticated(self, one: Connection) -> None:
        self._without_token.get(one.address, {}).pop(one, None)

    def leave(self, one: Connection) -> None:
        if one not in self._all:
            return
        del self._all[one]
        self.mark_authenticated(one)
        self._counts[one.address] -= 1
        if not self._counts[one.address]:
            del self._counts[one.address]
            self._without_token.pop(one.address, None)

    async def watch(self) -> None:
        """Closes connections that are too slow, for as long as the server runs."""
        while True:
            await asyncio.sleep(min(1.0, self.limits.header_timeout / 4, self.limits.body_timeout / 4))
            now = time.monotonic()
            for one in list(self._all):
                one.look(now)


class Connection(asyncio.Protocol):
    def __init__(self, inner: Any, among: Connections) -> None:
        self._inner, self._among = inner, among
        self._transport: asyncio.Transport | None = None
        self.address = ""
        self._stray = 0  # bytes since the last ones that belonged to a body or completed a request's headers
        self._phase: Phase | None = None
        self._since = float("inf")  # when that phase, or the period that is measured in it, began
        self._got = 0  # bytes of a body since then
        self._unsent = 0  # bytes of an answer that the client has not read
        self._closing_at: float | None = None

    # Called by the event loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        peer = transport.get_extra_info("peername")
        self.address = str(peer[0]) if isinstance(peer, tuple) else ""
        self._since = time.monotonic()
        self._phase = "request"
        if self._among.enter(self):
            self._inner.connection_made(transport)
        else:
            self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._among.leave(self)
        if self._inner.transport is not None:
            self._inner.connection_lost(exc)

    def eof_received(self) -> bool | None:
        found: bool | None = self._inner.eof_received()
        return found

    def pause_writing(self) -> None:
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        self._inner.resume_writing()

    def data_received(self, data: bytes) -> None:
        assert self._transport is not None
        for part in self._parts(data):
            if self._transport.is_closing():
                return
            before = self._inner.cycle
            held = len(before.body) if before is not None else 0
            self._inner.data_received(part)
            self._count(len(part), before, held)

    # Called by others

    def mark_authenticated(self) -> None:
        """Called when a request on this connection had a valid token."""
        self._among.mark_authenticated(self)

    def abort(self) -> None:
        self._among.leave(self)
        if self._transport is not None:
            self._transport.abort()

    def look(self, now: float) -> None:
        """Closes the connection if it made no progress in time."""
        transport, limits = self._transport, self._among.limits
        if transport is None:
            return
        if transport.is_closing():
            self._closing_at = self._closing_at or now
            if now - self._closing_at > limits.header_timeout:
                transport.abort()  # the client doesn't read the rest
            return
        phase = self._now()
        if phase != self._phase:
            self._begin(phase, now)
        elif phase == "request" and now - self._since > limits.header_timeout:
            self._refuse(b"408 Request Timeout")
        elif phase == "body" and (self._inner.flow.read_paused or now - self._since > limits.body_timeout):
            if not self._inner.flow.read_paused and self._got < LEAST_BYTES:
                transport.abort()
            self._begin(phase, now)
        elif phase == "answer":
            unsent = transport.get_write_buffer_size()
            if not self._inner.flow.write_paused or unsent != self._unsent:
                self._begin(phase, now)
            elif now - self._since > limits.body_timeout:
                transport.abort()

    # State of the request

    def _now(self) -> Phase:
        cycle = self._inner.cycle
        if cycle is None:
            return "request"
        if not cycle.response_complete:
            return "body" if cycle.more_body else "answer"
        return "request" if self._stray or cycle.more_body else "idle"

    def _begin(self, phase: Phase, now: float) -> None:
        assert self._transport is not None
        self._phase, self._since, self._got = phase, now, 0
        self._unsent = self._transport.get_write_buffer_size()

    def _parts(self, data: bytes) -> Iterator[bytes]:
        at = 0
        while at < len(data):
            size = len(data) if self._now() == "body" else _SLICE
            yield data[at : at + size] if at or size < len(data) else data
            at += size

    def _count(self, size: int, before: Any, held: int) -> None:
        cycle = self._inner.cycle
        if cycle is not before:
            self._stray, self._phase = 0, None  # restarts the timer
            cycle.scope.setdefault("extensions", {})[CONNECTION] = self
        elif cycle is not None and len(cycle.body) > held:
            self._stray = 0
            self._got += len(cycle.body) - held
        else:
            self._stray += size
        if self._stray > HEADER_BYTES or len(getattr(self._inner, "pipeline", ())) > _PIPELINED:
            self._refuse(b"431 Request Header Fields Too Large")

    def _refuse(self, status: bytes) -> None:
        assert self._transport is not None
        if self._transport.is_closing():
            return
        cycle = self._inner.cycle
        if self._stray and (cycle is None or cycle.response_complete):
            head = b"HTTP/1.1 " + status + b"\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
            self._transport.write(head)
        self._transport.close()


def _evict(without_token: dict[Connection, None]) -> bool:
    """Closes the oldest connection, if there is one."""
    oldest = next(iter(without_token), None)
    if oldest is not None:
        oldest.abort()
    return oldest is not None
