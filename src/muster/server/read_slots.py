"""Limits expensive reads: a few of each user run at once and others wait in line, so that no user takes all threads."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final

from muster.core.errors import TooMany
from muster.server.limits import Limits

_LINE: Final = 64  # reads of one user that may wait


@dataclass(slots=True)
class _Line:
    running: int = 0
    waiting: deque[asyncio.Future[None]] = field(default_factory=deque)


class ReadSlots:
    """Used only by the event loop's thread."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._lines: dict[str, _Line] = {}
        self._running = 0

    @asynccontextmanager
    async def take(self, user: str) -> AsyncIterator[None]:
        """Waits for a turn and holds it. Raises TooMany if the line is too long, or did not move in time."""
        line = self._lines.setdefault(user, _Line())
        try:
            await self._enter(user, line)
        except BaseException:
            self._leave(user, line)
            raise
        try:
            yield
        finally:
            self._end(line)
            self._leave(user, line)

    async def _enter(self, user: str, line: _Line) -> None:
        if not line.waiting and self._free(line):
            self._start(line)
            return
        if len(line.waiting) >= _LINE:
            raise self._refusal(user)
        mine: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        line.waiting.append(mine)
        try:
            async with asyncio.timeout(self._limits.read_wait):
                await mine
        except TimeoutError:
            if not _given(mine):  # the turn may come at the same moment
                line.waiting.remove(mine)
                raise self._refusal(user) from None
        except BaseException:
            if _given(mine):
                self._end(line)
            else:
                line.waiting.remove(mine)
            raise

    def _free(self, line: _Line) -> bool:
        return line.running < self._limits.reads_per_user and self._running < self._limits.reads

    def _start(self, line: _Line) -> None:
        line.running += 1
        self._running += 1

    def _end(self, line: _Line) -> None:
        line.running -= 1
        self._running -= 1

    def _leave(self, user: str, line: _Line) -> None:
        """Lets the next ones in line run: first those of other users, since this one has just had a turn."""
        if not line.running and not line.waiting:
            self._lines.pop(user, None)
        elif line.waiting:
            self._lines[user] = self._lines.pop(user)
        for other in list(self._lines.values()):
            while self._free(other) and (first := _first(other)) is not None:
                self._start(other)
                other.waiting.remove(first)
                first.set_result(None)

    def _refusal(self, user: str) -> TooMany:
        most = self._limits.reads_per_user
        return TooMany(
            f"{most} heavy requests of {user} run already, and others wait.",
            "Wait for them and ask again; `reads_per_user` in `[limits]` of the server's config.toml sets how many.",
        )


def _given(turn: asyncio.Future[None]) -> bool:
    return turn.done() and not turn.cancelled()


def _first(line: _Line) -> asyncio.Future[None] | None:
    """The first that still waits. One that gave up is about to leave the line by itself."""
    return next((one for one in line.waiting if not one.done()), None)
