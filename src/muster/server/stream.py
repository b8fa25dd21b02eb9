"""Server-sent events: a hub that wakes whoever waits for news, and the frames that they are sent."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from fastapi.responses import StreamingResponse

PING_EVERY: Final = 10.0  # seconds
ALL: Final = ""  # the topic that hears of everything

Send = Callable[[], Coroutine[Any, Any, tuple[list[bytes], bool]]]


@dataclass(slots=True)
class Topic:
    """How often something happened, while anybody listens, and those who wait for the next time."""

    listeners: int = 0
    count: int = 0
    waiting: set[asyncio.Future[None]] = field(default_factory=set)

    def ring(self) -> None:
        self.count += 1
        for future in self.waiting:
            if not future.done():
                future.set_result(None)

    async def wait(self, seen: int, seconds: float) -> bool:
        """Whether something has happened since the count was `seen`, or does within the time."""
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
    """Topics by name: a job's id, or ALL. Only the event loop's thread touches them."""

    def __init__(self) -> None:
        self._topics: dict[str, Topic] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self.closed = False

    def attach(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def tell(self, topics: Iterable[str]) -> None:
        """Called from any thread."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._ring, [*topics, ALL])

    def close(self) -> None:
        """Ends every stream, so that the server can stop; called on the event loop."""
        self.closed = True
        self._ring(list(self._topics))

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

    def _ring(self, names: list[str]) -> None:
        for name in names:
            topic = self._topics.get(name)
            if topic is not None:
                topic.ring()


def frame(event: str, data: object, id_: str | int | None = None) -> bytes:
    head = f"id: {id_}\n" if id_ is not None else ""
    return f"{head}event: {event}\ndata: {json.dumps(data, separators=(',', ':'))}\n\n".encode()


def stream(hub: Hub, topic: str, send: Send, pause: float = 0.0) -> StreamingResponse:
    """Calls `send` for new frames at once and whenever the topic has news, until it says that it is done.

    `pause`: the least seconds between two looks, so that a chatty job does not keep the server busy.
    """

    async def frames() -> AsyncIterator[bytes]:
        with hub.listen(topic) as news:
            yield b": muster\n\n"
            while not hub.closed:
                seen = news.count
                parts, done = await send()
                if parts:
                    yield b"".join(parts)
                if done:
                    return
                if not await news.wait(seen, PING_EVERY):
                    yield b": ping\n\n"
                if pause:
                    await asyncio.sleep(pause)

    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    return StreamingResponse(frames(), media_type="text/event-stream", headers=headers)
