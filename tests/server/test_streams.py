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


def test_a_silent_stream_sends_comments_although_its_topic_has_news() -> None:
    """A job that writes nothing still has news, such as samples of its hardware: they wake the stream all the time."""
    hub, looks = Hub(), 0
    streams = Streams(hub, cast(ReadSlots, Busy(0)), 4, ping_every=0.0)
    watcher = Watcher("ada", lambda: ADA, lambda: True)

    def look(asking: Identity) -> tuple[list[bytes], bool]:
        nonlocal looks
        looks += 1
        hub._topics["job-1"].count += 1  # there are news before the stream waits for some
        return ([b"last"], True) if looks == 3 else ([], False)

    async def heard() -> list[bytes]:
        return [part async for part in streams._frames(watcher, "job-1", look, 0.0)]

    assert asyncio.run(heard()) == [b": muster\n\n", b": ping\n\n", b": ping\n\n", b"last"]


def test_a_stream_that_has_just_sent_something_needs_no_comment() -> None:
    hub, looks = Hub(), 0
    streams = Streams(hub, cast(ReadSlots, Busy(0)), 4, ping_every=3600.0)
    watcher = Watcher("ada", lambda: ADA, lambda: True)

    def look(asking: Identity) -> tuple[list[bytes], bool]:
        nonlocal looks
        looks += 1
        hub._topics["job-1"].count += 1
        return [b"%d" % looks], looks == 3

    async def heard() -> list[bytes]:
        return [part async for part in streams._frames(watcher, "job-1", look, 0.0)]

    assert asyncio.run(heard()) == [b": muster\n\n", b"1", b"2", b"3"]
