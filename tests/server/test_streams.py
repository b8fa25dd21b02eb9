"""Streams without a server: what they send while they wait for a turn."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import cast

import pytest

from muster.core.entities import Token
from muster.core.errors import TooMany
from muster.server import stream
from muster.server.auth import Identity
from muster.server.read_slots import ReadSlots
from muster.server.stream import Hub, Streams, Watcher

ADA = Identity("ada", Token("1", "first", "ada", ""))


class Busy:
    """Refuses the first requests."""

    def __init__(self, refusals: int) -> None:
        self.left = refusals

    @asynccontextmanager
    async def take(self, user: str) -> AsyncIterator[None]:
        self.left -= 1
        if self.left >= 0:
            raise TooMany("Others read.", "Wait.")
        yield


def test_a_stream_that_waits_for_a_turn_is_heard_of(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else its listener takes the server for lost, and asks once more."""
    monkeypatch.setattr(stream, "_AGAIN", 0.0)
    streams = Streams(Hub(), cast(ReadSlots, Busy(2)), 4)
    watcher = Watcher("ada", lambda: ADA, lambda: True)

    async def heard() -> list[bytes]:
        return [part async for part in streams._frames(watcher, "", lambda asking: ([b"last"], True), 0.0)]

    assert asyncio.run(heard()) == [b": muster\n\n", b": ping\n\n", b": ping\n\n", b"last"]
