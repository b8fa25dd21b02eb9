"""Server-sent event streams that continue across restarts of a server, without losing or repeating an event."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Final

from muster.client.answers import error_body
from muster.client.http import BUSY_FOR, Silence, Transport
from muster.core.errors import Unavailable
from muster.core.lines import ByteLines

PING_EVERY: Final = 10.0  # seconds between two comments of an idle server
READ_TIMEOUT: Final = 3.5 * PING_EVERY  # after three missed comments the stream is opened again
RETRY_FOR: Final = 60.0  # seconds to wait for a lost server, by default
FIRST_DELAY: Final = 0.1  # seconds before the first reconnection; doubled up to LAST_DELAY
LAST_DELAY: Final = 2.0
BAR_EVERY: Final = 5.0  # seconds between two shown states of a progress bar that redraws itself

Link = Callable[[bool], None]  # called with False when the server is lost and with True when it is back


@dataclass(frozen=True, slots=True)
class Message:
    """One server-sent event; `id` is None if the server sent none."""

    event: str
    data: Any
    id: int | None = None


@dataclass(frozen=True, slots=True)
class LogLine:
    """One line that a rank wrote, without its line break."""

    attempt: int
    rank: int
    text: str
    dropped: int = 0  # bytes of output that are missing here; the text says why
    time: float | None = None  # when it was written, in seconds since 1970, by the clock of its node


async def follow(
    transport: Transport,
    path: str,
    params: Mapping[str, Any],
    *,
    retry_for: float = RETRY_FOR,
    deadline: float | None = None,
    on_link: Link | None = None,
    busy_for: float = BUSY_FOR,
) -> AsyncGenerator[Message, None]:
    """Every message once, up to and including `end`. If the server is lost, waits for it and continues the stream.

    A stream that falls silent is opened again at once; the server counts as lost only if that brings nothing either.
    `deadline` is monotonic time; raises TimeoutError after it. Raises TooMany if the user has no stream left for
    `busy_for` seconds.
    """
    last_id: int | None = None
    lost_at: float | None = None
    delay = FIRST_DELAY
    while True:
        heard = False
        try:
            async with aclosing(_connection(transport, path, params, last_id, deadline, busy_for)) as messages:
                async for message in messages:
                    heard = True
                    if lost_at is not None and on_link is not None:
                        on_link(True)
                    lost_at, delay = None, FIRST_DELAY
                    if message is None or (message.id is not None and last_id is not None and message.id <= last_id):
                        continue
                    if message.event == "error":
                        raise error_body(message.data)
                    last_id = last_id if message.id is None else message.id
                    yield message
                    if message.event == "end":
                        return
            failure = Unavailable("The server closed the stream.", "See `muster doctor`.")
        except Silence as error:
            if heard:
                continue
            failure = error
        except Unavailable as error:
            failure = error
        now = time.monotonic()
        if lost_at is None:
            lost_at = now
            if on_link is not None:
                on_link(False)
        if now - lost_at >= retry_for:
            raise failure
        await transport.sleep(min(delay, left(deadline, LAST_DELAY)))
        delay = min(delay * 2, LAST_DELAY)


class Parser:
    """Messages of a text/event-stream."""

    def __init__(self) -> None:
        self._lines = ByteLines()
        self._event, self._data = "message", list[bytes]()
        self._id: int | None = None

    def feed(self, chunk: bytes) -> Iterator[Message | None]:
        """The messages that this piece completes; None for a comment, which shows that the server is alive."""
        for line in self._lines.feed(chunk):
            if line.startswith(b":"):
                yield None
            elif line:
                self._field(*line.split(b":", 1))
            elif self._data:
                yield Message(self._event, json.loads(b"\n".join(self._data)), self._id)
                self._event, self._data, self._id = "message", [], None

    def _field(self, name: bytes, value: bytes = b"") -> None:
        value = value.removeprefix(b" ")
        if name == b"event":
            self._event = value.decode()
        elif name == b"data":
            self._data.append(value)
        elif name == b"id" and value.isdigit():
            self._id = int(value)


class Lines:
    """Joins pieces of output into lines, separately for each rank.

    A progress bar redraws itself with carriage returns. Of such a line only the text that a terminal would finally show
    is kept. While it is drawn, its state is shown every few seconds, so that a user who follows sees progress.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._open: dict[tuple[int, int], str] = {}
        self._open_at: dict[tuple[int, int], float | None] = {}  # when the open line was begun
        self._shown: dict[tuple[int, int], float] = {}
        self._seen: dict[tuple[int, int], int] = {}  # offset up to which output was seen
        self._clock = clock

    def take(self, chunk: Mapping[str, Any]) -> Iterator[LogLine]:
        """The lines that a chunk of the API completes. Output that was seen before it was dropped is not missing."""
        key = (chunk["attempt"], chunk["rank"])
        seen, end = self._seen.get(key, 0), chunk.get("end", 0)
        self._seen[key] = max(seen, end)
        if not chunk.get("dropped"):
            yield from self.feed(*key, chunk["text"], chunk.get("times", ()))
        elif end > seen:
            if key in self._open:
                yield from self._close(key)
            yield LogLine(*key, chunk["text"].rstrip("\n"), chunk["dropped"])

    def feed(self, attempt: int, rank: int, text: str, times: Sequence[tuple[int, float]] = ()) -> Iterator[LogLine]:
        """The lines that this piece completes; `times` as in `LogChunkView`."""
        for older in [key for key in self._open if key[0] < attempt]:
            yield from self._close(older)
        key = (attempt, rank)
        begun, moments = self._open_at.pop(key, None), dict(times)
        *whole, rest = (self._open.pop(key, "") + text).split("\n")
        moment = moments.get(0)
        for number, line in enumerate(whole):
            moment = moments.get(number, moment)
            yield LogLine(attempt, rank, _shown_text(line), time=moment if number or begun is None else begun)
        if not rest:
            return
        moment = moments.get(len(whole), moment)
        self._open_at[key] = begun if not whole and begun is not None else moment
        if "\r" in rest and self._clock() - self._shown.get(key, float("-inf")) >= BAR_EVERY:
            self._shown[key] = self._clock()
            yield LogLine(attempt, rank, _shown_text(rest), time=moment)
            rest = rest[rest.rfind("\r") + 1 :]
        self._open[key] = rest

    def close(self) -> Iterator[LogLine]:
        """The remaining text without a line break at its end."""
        for key in list(self._open):
            yield from self._close(key)

    def _close(self, key: tuple[int, int]) -> Iterator[LogLine]:
        moment = self._open_at.pop(key, None)
        if text := _shown_text(self._open.pop(key)):
            yield LogLine(*key, text, time=moment)


async def _connection(
    transport: Transport,
    path: str,
    params: Mapping[str, Any],
    last_id: int | None,
    deadline: float | None,
    busy_for: float,
) -> AsyncGenerator[Message | None, None]:
    """The messages of one connection after `last_id`. Ends when the server closes it; Unavailable if it breaks."""
    headers = {"Accept": "text/event-stream", "Accept-Encoding": "identity", "Cache-Control": "no-cache"}
    if last_id is not None:
        headers["Last-Event-ID"] = str(last_id)
        params = {**params, "tail": None, "last": None}  # not for a continued stream
    try:
        again = True
        while again:
            again = False
            opened_at = time.monotonic()
            timeout = left(deadline, READ_TIMEOUT)
            async with transport.open(path, params, timeout, headers, busy_for) as response:
                parser = Parser()
                async with aclosing(transport.blocks(response)) as blocks:
                    async for block in blocks:
                        for message in parser.feed(block):
                            yield message
                        # Opened again with the remaining time, so that the next read times out at the deadline.
                        again = deadline is not None and time.monotonic() - opened_at > PING_EVERY / 2
                        if again:
                            break
    except Unavailable:
        left(deadline, READ_TIMEOUT)
        raise


def left(deadline: float | None, most: float) -> float:
    """Seconds to the deadline, and not more than `most`. Raises TimeoutError after it."""
    if deadline is None:
        return most
    seconds = deadline - time.monotonic()
    if seconds <= 0:
        raise TimeoutError("It took longer than the given time.")
    return min(seconds, most)


def _shown_text(line: str) -> str:
    parts = [part for part in line.split("\r") if part.strip()]
    return parts[-1] if parts else ""
