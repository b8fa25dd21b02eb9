"""Server-sent events: a hub that wakes waiting streams, the frames that they send, and the check of rights."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

from anyio import to_thread
from fastapi.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from muster.core.errors import MusterError, TooMany
from muster.server.answers import error_answer
from muster.server.auth import Identity
from muster.server.read_slots import ReadSlots

PING_EVERY: Final = 10.0  # seconds without a byte after which a comment is sent; the token is checked as often
ALL: Final = ""  # the topic of all events
_AGAIN: Final = 1.0  # seconds until the next look, after one that got no turn

# Returns new frames for the current identity, and whether these were the last. Raises MusterError if not allowed.
Look = Callable[[Identity], tuple[list[bytes], bool]]


@dataclass(slots=True)
class Topic:
    """Counts what happens while there are listeners, and wakes those that wait."""

    listeners: int = 0
    count: int = 0
    waiting: set[asyncio.Future[None]] = field(default_factory=set)

    def wake(self) -> None:
        self.count += 1
        for future in self.waiting:
            if not future.done():
                future.set_result(None)

    async def wait(self, seen: int, seconds: float) -> bool:
        """Whether something has happened since the count was `seen`, or happens within the given seconds."""
        if self.count != seen:
            return True
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.waiting.add(future)
        try:
            await asyncio.wait_for(future, seconds)
        except TimeoutError:
            return False
        finally:
            self.waiting.discard(future)
        return True


class Hub:
    """Topics by name: a job's id, or ALL. Used only by the event loop's thread."""

    def __init__(self) -> None:
        self._topics: dict[str, Topic] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self.closed = False

    def attach(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def notify(self, topics: Iterable[str]) -> None:
        """Wakes the listeners of the topics. May be called from any thread."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._wake, [*topics, ALL])

    def wake_all(self) -> None:
        """Wakes all listeners of all topics, because rights have changed. May be called from any thread."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(lambda: self._wake(list(self._topics)))

    def close(self) -> None:
        """Ends every stream, so that the server can stop; called on the event loop."""
        self.closed = True
        self._wake(list(self._topics))

    @contextmanager
    def listen(self, name: str) -> Iterator[Topic]:
        topic = self._topics.setdefault(name, Topic())
        topic.listeners += 1
        try:
            yield topic
        finally:
            topic.listeners -= 1
            if not topic.listeners:
                self._topics.pop(name, None)

    def _wake(self, names: list[str]) -> None:
        for name in names:
            topic = self._topics.get(name)
            if topic is not None:
                topic.wake()


def frame(event: str, data: object, id_: str | int | None = None) -> bytes:
    head = f"id: {id_}\n" if id_ is not None else ""
    return f"{head}event: {event}\ndata: {json.dumps(data, separators=(',', ':'))}\n\n".encode()


@dataclass(frozen=True, slots=True)
class Watcher:
    """The client of a stream. `identify` authenticates it again, or raises; `leads`: whether this server leads."""

    user: str
    identify: Callable[[], Identity]
    leads: Callable[[], bool]


@dataclass(slots=True)
class Streams:
    """The open streams of each user. Used only by the event loop's thread."""

    hub: Hub
    read_slots: ReadSlots
    per_user: int
    ping_every: float = PING_EVERY
    _open: Counter[str] = field(default_factory=Counter)

    @contextmanager
    def opened(self, user: str) -> Iterator[None]:
        if self._open[user] >= self.per_user:
            raise TooMany(
                f"{user} has {self._open[user]} streams open, and may have {self.per_user}.",
                "Close some; `streams_per_user` in `[limits]` of the server's config.toml sets how many.",
            )
        self._open[user] += 1
        try:
            yield
        finally:
            self._open[user] -= 1
            if not self._open[user]:
                del self._open[user]

    def follow(self, watcher: Watcher, topic: str, look: Look, pause: float = 0.0) -> StreamingResponse:
        """Calls `look` in a thread, at once and whenever the topic has news, until it reports that it is done.

        `pause`: minimum seconds between two looks, so that a chatty job does not keep the server busy.
        """
        return _Stream(self, watcher, self._frames(watcher, topic, look, pause))

    async def _frames(self, watcher: Watcher, topic: str, look: Look, pause: float) -> AsyncIterator[bytes]:
        clock = asyncio.get_running_loop().time
        with self.hub.listen(topic) as news:
            yield b": muster\n\n"
            sent_at = clock()
            while not self.hub.closed and watcher.leads():
                seen = news.count
                try:
                    async with self.read_slots.take(watcher.user):
                        parts, done = await to_thread.run_sync(look, watcher.identify())
                except TooMany:
                    yield b": ping\n\n"  # so that the client knows that the server is there
                    sent_at = clock()
                    await asyncio.sleep(_AGAIN)
                    continue
                except MusterError as error:
                    parts, done = [frame("error", error.to_dict())], True
                if parts:
                    yield b"".join(parts)
                    sent_at = clock()
                if done:
                    return
                await news.wait(seen, max(0.0, sent_at + self.ping_every - clock()))
                # By time and not by news: a silent job still has news, such as samples of its hardware.
                if clock() - sent_at >= self.ping_every:
                    yield b": ping\n\n"
                    sent_at = clock()
                if pause:
                    await asyncio.sleep(pause)


class _Stream(StreamingResponse):
    """A stream that counts for its user while it is open."""

    def __init__(self, streams: Streams, watcher: Watcher, frames: AsyncIterator[bytes]) -> None:
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        super().__init__(frames, media_type="text/event-stream", headers=headers)
        self._streams, self._watcher = streams, watcher

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            with self._streams.opened(self._watcher.user):
                await super().__call__(scope, receive, send)
        except TooMany as error:
            await error_answer(error)(scope, receive, send)
