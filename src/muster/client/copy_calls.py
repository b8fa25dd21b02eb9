"""Calls that copy files and folders to and from the folder of a running job."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from muster.client.connection import Anyone
from muster.client.exec_calls import START_PATIENCE, ExecStream, exit_code, open_exec
from muster.copying import BLOCK, Copied, CopyError, Progress, receive, send
from muster.core.errors import Conflict, Invalid
from muster.exec_frames import DATA, END, EOF, STDERR


async def copy_to(
    to: Anyone,
    /,
    ref: str | int,
    source: str | Path,
    path: str = ".",
    *,
    worker: int | None = None,
    progress: Progress | None = None,
    start_timeout: float = START_PATIENCE,
    on_wait: Callable[[str], None] | None = None,
) -> Copied:
    """Copies a local file or folder to `path` on the node of a running job's worker (default: 0).

    A relative `path` starts in the job's folder. It is written as the job's user, isolated as its ranks are. Each file
    is checked, and nothing has its final name before all of it has come. `progress` is called with the bytes so far and
    in all. A job that is starting is waited for, at most `start_timeout` seconds. Returns "files", "bytes", "skipped".
    """
    await to._transport.work(Path(source).stat)  # before anything is opened there
    async with _session(to, ref, path, worker, "receive", start_timeout, on_wait) as copy:
        copied = await to._transport.work(send, str(source), copy.write, progress)
        await copy.end()
        return copied


async def copy_from(
    to: Anyone,
    /,
    ref: str | int,
    path: str,
    target: str | Path = ".",
    *,
    worker: int | None = None,
    progress: Progress | None = None,
    start_timeout: float = START_PATIENCE,
    on_wait: Callable[[str], None] | None = None,
) -> Copied:
    """Copies a file or a folder of a running job to `target` on this machine; see `copy_to`.

    Nothing is written outside of `target`, whatever the job sends.
    """
    async with _session(to, ref, path, worker, "send", start_timeout, on_wait) as copy:
        copied = await to._transport.work(receive, copy.read, Path(target), progress)
        await copy.ended()
        return copied


class _Copy:
    """A session that copies. `read` and `write` are called by a function that the transport's `work` runs."""

    def __init__(self, stream: ExecStream, wait: Callable[[Awaitable[Any]], Any]) -> None:
        self._stream, self._wait = stream, wait
        self._said = b""
        self._code: int | None = None

    def read(self) -> bytes:
        """The next bytes; empty at the end. Raises Invalid, with the other side's words, if it failed."""
        found: bytes = self._wait(self._next())
        return found

    def write(self, data: bytes) -> None:
        for at in range(0, len(data), BLOCK):
            self._wait(self._send(data[at : at + BLOCK]))

    async def end(self) -> None:
        """Nothing more is sent; returns when the other side has taken all of it."""
        with suppress(Conflict):  # it has all of it and ended already
            await self._stream.send(EOF)
        await self.ended()

    async def ended(self) -> None:
        while await self._next():
            pass

    async def _send(self, data: bytes) -> None:
        try:
            await self._stream.send(DATA, data)
        except Conflict:  # it has ended: why is in what it wrote
            await self._next()
            raise

    async def _next(self) -> bytes:
        while self._code is None:
            found = b""
            for frame in await self._stream.receive():
                if frame.kind == DATA:
                    found += frame.data
                elif frame.kind == STDERR:
                    self._said = (self._said + frame.data)[:2000]
                elif frame.kind == END:
                    self._code = exit_code(frame)
            if found:
                return found
        if self._code:
            said = self._said.decode(errors="replace").strip() or f"it failed with status {self._code}"
            job = self._stream.view["job"]
            raise Invalid(f"cp: on the node of {job}: {said}.", f"`muster exec {job} -- ls -la` shows its folder.")
        return b""


@asynccontextmanager
async def _session(
    to: Anyone,
    ref: str | int,
    path: str,
    worker: int | None,
    direction: str,
    start_timeout: float,
    on_wait: Callable[[str], None] | None,
) -> AsyncGenerator[_Copy, None]:
    stream = await open_exec(
        to, ref, [path or "."], worker=worker, copy=direction, start_timeout=start_timeout, on_wait=on_wait
    )
    try:
        yield _Copy(stream, to._transport.waiter())
    except CopyError as error:
        await stream.close()
        raise Invalid(f"cp: {error}.", "Nothing was left under the final name.") from None
    except BaseException:
        await stream.close()
        raise
