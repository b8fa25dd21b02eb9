"""Exec sessions: joins a client's bytes with those of a process on a job's node, in memory that is bounded.

Both sides ask; nobody connects to a node. Offsets make a repeated request harmless. A session ends with its command,
with its job, when one side is lost, and when nothing was sent for long. The server forgets sessions when it restarts.
Used by the event loop's thread only.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from muster.core.errors import Conflict
from muster.core.job import Job
from muster.exec_frames import CHUNK, Ended, encode_end
from muster.server.limits import Limits

ROOM: Final = 1 << 20  # bytes that are held in each direction
UNHEARD: Final = 10.0  # seconds in which the worker must report, which it does every two: it hears of a session then
CLAIM: Final = 60.0  # seconds in which it must begin
SILENT: Final = 45.0  # seconds without a request of one side, which asks every few seconds
GONE: Final = 5.0  # seconds after a connection was cut while a request waited
LEFT_OVER: Final = 1.0  # seconds in which requests are still read that a client sent before it was killed
KEPT: Final = 60.0  # seconds for which the end of a session can be asked for
EVERY: Final = 0.5  # seconds between two looks at all sessions
LOST: Final = "There is no such exec session. It has ended, or the server was restarted since it began."

_log = logging.getLogger(__name__)
T = TypeVar("T")


class Pipe:
    """One direction. The reader's offset says what it has; that is dropped."""

    def __init__(self) -> None:
        self._base = 0
        self._held = bytearray()
        self._closed = False
        self._news = asyncio.Event()

    @property
    def end(self) -> int:
        return self._base + len(self._held)

    async def write(self, at: int, data: bytes, wait: float) -> int:
        """Takes as much as there is room for, and waits for room; returns how far it has the stream."""
        if at > self.end:
            raise Conflict(f"The stream goes on at {at}; the server has it up to {self.end}.")
        data = data[self.end - at :]
        until = time.monotonic() + wait
        while data and not self._closed:
            part = data[: ROOM - len(self._held)]
            if part:
                self._held += part
                data = data[len(part) :]
                self._tell()
            elif not await self._wait(until):
                break
        return self.end

    async def read(self, at: int, wait: float) -> bytes:
        """What follows the offset; empty if nothing came in time."""
        if not self._base <= at <= self.end:
            raise Conflict(f"The stream is held from {self._base} to {self.end}; it was asked for at {at}.")
        if at > self._base:
            del self._held[: at - self._base]
            self._base = at
            self._tell()
        until = time.monotonic() + wait
        while at >= self.end and not self._closed:
            if not await self._wait(until):
                break
        return bytes(self._held[max(0, at - self._base) :][:CHUNK])

    def close(self, last: bytes = b"") -> None:
        self._held += last
        self._closed = True
        self._tell()

    def drained(self, at: int) -> bool:
        return self._closed and at >= self.end

    def _tell(self) -> None:
        news, self._news = self._news, asyncio.Event()
        news.set()

    async def _wait(self, until: float) -> bool:
        try:
            await asyncio.wait_for(self._news.wait(), max(0.0, until - time.monotonic()))
        except TimeoutError:
            return False
        return True


@dataclass(slots=True)
class Side:
    """The client, or the process on the node: when it last asked, and since when its connection is cut."""

    seen: float
    cut: float | None = None
    waiting: int = 0  # requests that it waits for an answer to, on connections that are not known to be cut

    def ask(self) -> None:
        self.seen = time.monotonic()
        if self.cut is not None and self.seen - self.cut > LEFT_OVER:
            self.cut = None

    def lost(self, now: float) -> bool:
        gone = self.cut is not None and now - self.cut > GONE and not self.waiting
        return gone or now - self.seen > SILENT


@dataclass(slots=True)
class Exec:
    id: str
    job: str
    attempt: int
    worker: int
    user: str
    project: str
    request: dict[str, Any]  # what the worker is told
    client: Side
    host: Side | None = None  # None until the worker has begun
    told: bool = False  # the worker has heard of it
    input: Pipe = field(default_factory=Pipe)
    output: Pipe = field(default_factory=Pipe)
    began: float = field(default_factory=time.monotonic)
    active: float = field(default_factory=time.monotonic)  # when bytes last came from either side
    ended: Ended | None = None
    ended_at: float = float("inf")


class Execs:
    """All sessions of a server. `job_of`: the live job. `record`: writes how a session ended into the event log."""

    def __init__(
        self, limits: Limits, job_of: Callable[[str], Job | None], record: Callable[[Exec, float], None]
    ) -> None:
        self._limits, self._job_of, self._record = limits, job_of, record
        self._all: dict[str, Exec] = {}
        self._waiting: dict[tuple[str, int, int], list[str]] = {}
        self._watch: asyncio.Task[None] | None = None

    def check_room(self, user: str, job: str, worker: int) -> None:
        """Raises Conflict if there are too many sessions."""
        live = [one for one in self._all.values() if one.ended is None]
        for found, most, whose, name in (
            (len(live), self._limits.execs, "The server", "execs"),
            (sum(one.user == user for one in live), self._limits.execs_per_user, user, "execs_per_user"),
            (sum((one.job, one.worker) == (job, worker) for one in live), self._limits.execs_per_worker,
             f"Worker {worker} of {job}", "execs_per_worker"),
        ):  # fmt: skip
            if found >= most:
                raise Conflict(
                    f"{whose} has {found} exec sessions, the most that are allowed.",
                    f"End some; `{name}` in `[limits]` of the server's config.toml sets how many.",
                )

    def add(self, one: Exec) -> None:
        self._all[one.id] = one
        self._waiting.setdefault((one.job, one.attempt, one.worker), []).append(one.id)
        if self._watch is None or self._watch.done():
            self._watch = asyncio.get_running_loop().create_task(self._look())

    def waiting(self, job: str, attempt: int, worker: int) -> tuple[str, ...]:
        """Sessions that the worker has not begun; it is told of them."""
        found = tuple(self._waiting.get((job, attempt, worker), ()))
        for ident in found:
            self._all[ident].told = True
        return found

    def of_user(self, ident: str, job: str, user: str) -> Exec:
        one = self._all.get(ident)
        if one is None or (one.job, one.user) != (job, user):
            raise Conflict(LOST)
        one.client.ask()
        return one

    def of_attempt(self, ident: str, attempt: tuple[str, int], claim: bool = False) -> Exec:
        one = self._all.get(ident)
        if one is None or one.ended is not None or (one.job, one.attempt) != attempt:
            raise Conflict(LOST)
        if one.host is None:
            if not claim:
                raise Conflict("The session has not begun.")
            one.host = Side(time.monotonic())
            self._forget_waiting(one)
        one.host.ask()
        return one

    async def write(
        self, one: Exec, side: Side, pipe: Pipe, at: int, data: bytes, wait: float, cut: Awaitable[None]
    ) -> int:
        """How far the stream is there. `cut` ends when the connection of the request does."""

        async def take() -> int:
            before = pipe.end
            end = await pipe.write(at, data, wait)
            if end > before:
                one.active = time.monotonic()
                await asyncio.sleep((end - before) / self._limits.exec_bytes_per_second)
            return end

        return await _unless_cut(side, take(), cut, at)

    async def read(self, side: Side, pipe: Pipe, at: int, wait: float, cut: Awaitable[None]) -> bytes:
        """What follows the offset. `cut` ends when the connection of the request does."""
        return await _unless_cut(side, pipe.read(at, wait), cut, b"")

    def end(self, one: Exec, ended: Ended) -> None:
        if one.ended is not None:
            return
        one.ended, one.ended_at = ended, time.monotonic()
        self._forget_waiting(one)
        one.input.close()
        one.output.close(encode_end(ended))
        self._record(one, one.ended_at - one.began)

    def close(self) -> None:
        """Ends every session, so that the server can stop."""
        for one in list(self._all.values()):
            self.end(one, Ended(None, "The server was stopped."))

    def _forget_waiting(self, one: Exec) -> None:
        key = (one.job, one.attempt, one.worker)
        left = [ident for ident in self._waiting.get(key, ()) if ident != one.id]
        if left:
            self._waiting[key] = left
        else:
            self._waiting.pop(key, None)

    async def _look(self) -> None:
        """Ends sessions, as long as there are any."""
        while self._all:
            await asyncio.sleep(EVERY)
            now = time.monotonic()
            for one in list(self._all.values()):
                if one.ended is not None:
                    if now - one.ended_at > KEPT:
                        del self._all[one.id]
                elif why := self._why_ended(one, now):
                    try:
                        self.end(one, Ended(None, why))
                    except Exception:  # such as a database that is away: the other sessions are looked at all the same
                        _log.exception("the end of exec session %s of %s could not be recorded", one.id, one.job)

    def _why_ended(self, one: Exec, now: float) -> str:
        job = self._job_of(one.job)
        if job is None or job.attempt is None or not job.active:
            return f"The job {one.job} ended" + (f" ({job.phase})." if job is not None else ".")
        if job.attempt.number != one.attempt or job.attempt.workers[one.worker].state == "ended":
            return f"Worker {one.worker} of attempt {one.attempt} of {one.job} ended."
        if one.client.lost(now):
            return "The client went away."
        who = f"Worker {one.worker} of {one.job}"
        if one.host is None and not one.told and now - one.began > UNHEARD:
            return f"{who} did not report for {UNHEARD:.0f} s: its launcher is gone, frozen or cut off. Try again."
        if one.host is None and now - one.began > CLAIM:
            return f"{who} did not answer in {CLAIM:.0f} s; its launcher may be frozen, or of an older release."
        if one.host is not None and one.host.lost(now):
            return f"The connection to worker {one.worker} of {one.job} was lost."
        if now - one.active > self._limits.exec_idle:
            return f"Nothing was sent for {self._limits.exec_idle:g} s (`exec_idle` in `[limits]` of config.toml)."
        return ""


async def _unless_cut(side: Side, work: Awaitable[T], cut: Awaitable[None], otherwise: T) -> T:
    """The result of the work; if the connection is cut before, that is noted."""
    working, watching = asyncio.ensure_future(work), asyncio.ensure_future(cut)
    side.waiting += 1
    try:
        await asyncio.wait({working, watching}, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            side.cut = time.monotonic()
            return otherwise
        side.ask()
        return working.result()
    finally:
        side.waiting -= 1
        for task in (working, watching):
            task.cancel()
