"""The byte streams that a launcher ships, each with the server's position in it."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, Protocol

from muster import wire
from muster.runtime.segments import LINE_MAX, LogStore
from muster.runtime.spool import SpoolDamaged, SpoolReader

_FILLER_BYTES: Final = wire.DOC_MAX // 4
_CHARACTER_MAX: Final = 4  # bytes of a UTF-8 character


class Source(Protocol):
    """The source of a stream's bytes."""

    def read(self, offset: int, limit: int, final: bool) -> tuple[int, bytes]:
        """Bytes from `offset`, or from the oldest that is left, with their offset. `final`: no more will be written."""

    def times(self, start: int, end: int) -> tuple[tuple[int, float], ...]:
        """When the bytes of this range were written, if the stream does not say so itself."""

    def end(self) -> int:
        """The offset after the last available byte."""

    def drop(self, offset: int) -> None:
        """Records that the server has everything before this offset."""


class Stream:
    """One stream and the next offset to send."""

    def __init__(self, rank: int, name: wire.Stream, source: Source) -> None:
        self.rank = rank
        self.name: wire.Stream = name
        self.position = 0
        self._source = source
        self._filled = 0  # records before it were refused, and filler records are sent instead
        self._floor = 0  # bytes before it were refused for good, and are not sent again

    def take(self, limit: int, final: bool) -> wire.Piece | None:
        if self.position < self._filled:
            return wire.Piece(self.rank, self.name, self.position, filler(self._filled - self.position))
        offset, data = self._source.read(self.position, limit, final)
        if not data:
            return None
        return wire.Piece(self.rank, self.name, offset, data, self._source.times(offset, offset + len(data)))

    def more_than(self, piece: wire.Piece | None) -> bool:
        """Whether anything is left to send after this piece."""
        return self._source.end() > (piece.offset + len(piece.data) if piece else self.position)

    def end(self) -> int:
        """The offset after the last available byte."""
        return self._source.end()

    def settle(self, acked: int) -> None:
        """Follows the server's offset, backwards too: what it lost is sent again as far as it is still here."""
        self.position = max(acked, self._floor)
        self._source.drop(acked)

    def skip(self, piece: wire.Piece) -> None:
        """Skips a piece that the server refuses."""
        end = piece.offset + len(piece.data)
        if self.name != "log" and self._filled < end:
            self._filled = end
        else:
            self._floor = self.position = end


class LogSource:
    """A rank's output."""

    def __init__(self, store: LogStore) -> None:
        self._store = store

    def read(self, offset: int, limit: int, final: bool) -> tuple[int, bytes]:
        start, data = self._store.read(offset, limit)
        if len(data) >= limit and (whole := data.rfind(b"\n", len(data) - LINE_MAX) + 1):
            return start, data[:whole]  # complete lines, while more follows
        return start, data[: len(data) - _cut_short(data)] if len(data) > _CHARACTER_MAX else data

    def times(self, start: int, end: int) -> tuple[tuple[int, float], ...]:
        return self._store.times(start, end)

    def end(self) -> int:
        return self._store.end

    def drop(self, offset: int) -> None:
        self._store.ack(offset)


def _cut_short(data: bytes) -> int:
    """How many bytes at the end begin an incomplete UTF-8 character: it is left for the next piece."""
    for back in range(1, _CHARACTER_MAX):
        byte = data[-back]
        if byte >= 0xC0:  # the first byte of a character; its upper bits say how many follow
            size = 2 + (byte >= 0xE0) + (byte >= 0xF0)
            return back if size > back else 0
        if byte < 0x80:
            return 0
    return 0


class SpoolSource:
    """A rank's reports, or its host's, in complete records.
    Damaged ones are replaced and reported once through `say`."""

    def __init__(self, folder: Path, say: Callable[[str], None]) -> None:
        self._reader = SpoolReader(folder)
        self._say = say
        self._dropped = 0
        self._damaged_at = -1
        self._broken_at: int | None = None  # nothing after it can be read

    def read(self, offset: int, limit: int, final: bool) -> tuple[int, bytes]:
        try:
            return offset, self._reader.read(offset, limit, final)
        except SpoolDamaged as damage:
            if damage.position != self._damaged_at and (final or damage.resume is not None):
                self._damaged_at = damage.position
                rest = "the rest is" if damage.resume is None else f"{damage.resume - damage.position} bytes are"
                self._say(f"{damage}; {rest} left out")
            if damage.resume is None:
                self._broken_at = offset
                return offset, b""
            return offset, filler(min(damage.resume - offset, max(limit & ~7, _FILLER_BYTES)))

    def times(self, start: int, end: int) -> tuple[tuple[int, float], ...]:
        return ()  # its records have their own

    def end(self) -> int:
        end = self._reader.committed()
        return end if self._broken_at is None else min(end, self._broken_at)

    def drop(self, offset: int) -> None:
        if offset > self._dropped:
            self._reader.drop_before(offset)
            self._dropped = offset


def filler(size: int) -> bytes:
    """Filler records of this many bytes, a multiple of eight, in place of damaged ones,
    so that later offsets stay valid."""
    doc: dict[str, object] = {"type": "note", "time": time.time()}
    doc["text"] = f"{size} bytes of reports were damaged and are left out"
    parts, left = [], size
    while left:
        whole = left if left < 2 * _FILLER_BYTES else _FILLER_BYTES
        payload = json.dumps(doc).encode()
        if len(payload) + wire.RECORD_HEADER.size > whole:
            payload = b"{}"
        parts.append((wire.RECORD_HEADER.pack(wire.KIND_DOC, 0, whole) + payload).ljust(whole, b"\0"))
        left -= whole
        doc = {"type": "filler", "time": doc["time"]}
    return b"".join(parts)
