"""Calls that run a command beside a job's ranks: its streams, and its exit code."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from muster.client.connection import Anyone, job_path
from muster.core.errors import Conflict, MusterError, NotStarted, Unavailable
from muster.exec_frames import CHUNK, DATA, END, EOF, STDERR, WAIT, Decoder, Ended, Frame, decode_end, encode

if TYPE_CHECKING:
    from muster.api.execs import ExecView

READ_PATIENCE = WAIT + 20.0  # seconds for an answer that waits for bytes
START_PATIENCE = 60.0  # seconds for which a job that is about to run is waited for
_SOON = 0.05  # seconds
_LOOK_EVERY = 1.0  # seconds at most between two looks at a job that starts


@dataclass(frozen=True, slots=True)
class ExecResult:
    """What a command wrote, and its exit code: that of a shell, so 128 and more for a signal."""

    code: int
    stdout: bytes
    stderr: bytes

    @property
    def text(self) -> str:
        """Its standard output as text."""
        return self.stdout.decode(errors="replace")


class ExecStream:
    """The client's end of a session. One thread may send while another one receives."""

    def __init__(self, to: Anyone, view: ExecView) -> None:
        self.view = view
        self._to = to
        self._path = job_path(view["job"], "exec", view["id"])
        self._sent = self._received = 0
        self._decoder = Decoder()

    async def offer(self, data: bytes, wait: float = 0.0) -> int:
        """Sends encoded frames, and returns how many bytes were taken; none tells the server that we are there."""
        part = data[:CHUNK]
        params = {"at": self._sent, "wait": wait}
        answer = await self._to._transport.send_content("POST", f"{self._path}/input", part, len(part), params)
        taken = int(answer["end"]) - self._sent
        self._sent += taken
        return taken

    async def send(self, kind: int, data: bytes = b"") -> None:
        """Sends frames, and waits until the server has taken them."""
        left = encode(kind, data)
        while left:
            left = left[await self.offer(left, WAIT) :]

    async def receive(self, wait: float = WAIT) -> list[Frame]:
        """The next frames; none if nothing came in time."""
        params: dict[str, Any] = {"at": self._received, "wait": wait}
        data = await self._to._transport.read(f"{self._path}/output", params, READ_PATIENCE)
        self._received += len(data)
        try:
            return self._decoder.feed(data)
        except ValueError as error:
            raise garbled(error) from None

    async def close(self) -> None:
        """Ends the session, if it has not ended: its command is killed."""
        with suppress(MusterError):
            await self._to._send("DELETE", self._path)


async def open_exec(
    to: Anyone,
    ref: str | int,
    command: Sequence[str],
    *,
    worker: int | None = None,
    rank: int | None = None,
    tty: tuple[int, int] | None = None,
    term: str = "",
    copy: str | None = None,
    start_timeout: float = START_PATIENCE,
    on_wait: Callable[[str], None] | None = None,
) -> ExecStream:
    """Opens a session whose streams are sent and received one by one. `tty`: rows and columns of a terminal.

    `copy`, "send" or "receive": the command is a path, which is copied; see `muster.copying`. A job that is starting is
    waited for, at most `start_timeout` seconds; `on_wait` is called first, with its id.
    """
    body = {"command": list(command), "worker": worker, "rank": rank, "tty": tty, "term": term, "copy": copy}
    began, job = time.monotonic(), ""
    while True:
        try:
            return ExecStream(to, await to._send("POST", job_path(job or ref, "exec"), body))
        except NotStarted as refused:
            waited = time.monotonic() - began
            if waited >= start_timeout:
                raise NotStarted(f"{refused.message} It was waited for {start_timeout:g} s.", refused.hint) from None
        if not job:  # from here on the same one, whatever else gets its name
            job = (await to._get(job_path(ref)))["id"]
            if on_wait is not None:
                on_wait(job)
        await to._transport.sleep(min(_SOON + waited / 4, _LOOK_EVERY, start_timeout - waited))


async def exec_(
    to: Anyone,
    /,
    ref: str | int,
    command: Sequence[str],
    *,
    worker: int | None = None,
    rank: int | None = None,
    input: bytes = b"",
    timeout: float | None = None,
    start_timeout: float = START_PATIENCE,
) -> ExecResult:
    """Runs a command beside a running job's ranks, in its folder and environment, and returns what came of it.

    It runs on the node of `worker` (default: 0) or of `rank`, isolated as the job's ranks are. Secrets are masked in
    its output. Raises TimeoutError after `timeout` seconds; the command is killed then. The event log records it.
    A job that is starting is waited for, at most `start_timeout` seconds, and then NotStarted is raised.
    """
    left, written = (
        encode(DATA, input) + encode(EOF) if input else encode(EOF),
        {DATA: bytearray(), STDERR: bytearray()},
    )
    stream = await open_exec(to, ref, command, worker=worker, rank=rank, start_timeout=start_timeout)
    until = time.monotonic() + timeout if timeout is not None else None
    try:
        while True:
            wait = WAIT
            if left:
                try:
                    taken = await stream.offer(left)
                    left, wait = left[taken:], 0.0 if taken else _SOON
                except Conflict:  # it has ended without reading all; how is in its last frame
                    left = b""
            if until is not None:
                wait = min(wait, max(0.0, until - time.monotonic()))
            for frame in await stream.receive(wait):
                if frame.kind in written:
                    written[frame.kind] += frame.data
                elif frame.kind == END:
                    code = exit_code(frame)
                    return ExecResult(code, bytes(written[DATA]), bytes(written[STDERR]))
            if until is not None and time.monotonic() >= until:
                raise TimeoutError(f"The command did not end within {timeout:g} s, and was killed.")
    except BaseException:
        await stream.close()
        raise


def exit_code(frame: Frame) -> int:
    """The exit code in the last frame. Raises Unavailable if the session ended before the command."""
    try:
        ended: Ended = decode_end(frame.data)
    except ValueError as error:
        raise garbled(error) from None
    if ended.code is None:
        raise Unavailable(ended.error or "The session ended.", "`muster events` has the record of it.")
    return ended.code


def garbled(error: ValueError) -> Unavailable:
    return Unavailable(f"The worker sent what is no exec stream: {error}.", "The command there is ended.")
