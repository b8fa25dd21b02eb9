"""A rank's log on disk: a stream of bytes in segments, rotated within a limit and read by offset for shipping.

A segment is named by the offset of its first byte in the stream. What the server has is dropped first. When it has not
been able to take enough, the oldest bytes that were never sent are dropped, a line says how many, and the rest moves
down: the stream, as the server gets to see it, has no gaps. While the disk refuses writes, segments are kept in memory.
"""

from __future__ import annotations

import os
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

SEGMENTS: Final = 8
MEMORY_LIMIT: Final = 8 << 20  # bytes a rank that are kept when the disk is full
DISK_RETRY: Final = 1.0  # seconds
NOTE_LINE: Final = "\n[muster] {:>15} bytes of output were dropped here: the server was away and the log was full\n"
NOTE_BYTES: Final = len(NOTE_LINE.format(0))
_EACH_MIN: Final = 4096  # bytes; a segment must be longer than the note that may replace it
_NEVER: Final = 1 << 62


@dataclass(slots=True, eq=False)
class _Segment:
    start: int
    size: int = 0
    path: Path | None = None  # None: in memory
    data: bytearray = field(default_factory=bytearray)
    dropped: int = 0  # a note that stands for this many bytes

    @property
    def end(self) -> int:
        return self.start + self.size


class LogStore:
    """One log. `append` is called by the launcher's loop, `read` and `ack` by the shipper's thread."""

    def __init__(self, folder: Path, limit: int) -> None:
        self._folder = folder
        self._limit = limit
        self._each = max(_EACH_MIN, limit // SEGMENTS)
        self._lock = threading.Lock()
        self._segments: list[_Segment] = []
        self._fd = -1
        self._disk_from = 0.0  # monotonic time of the next try to write to disk
        self._acked = 0
        self._sent = 0  # nothing from this offset on was ever sent, so it may still be renumbered

    def recover(self) -> None:
        """Takes up what a dead launcher left. A gap is a renumbering that it did not finish: it is closed."""
        names = [p for p in self._folder.glob("log.*") if p.suffix[1:].isdigit()]
        for path in sorted(names, key=lambda p: int(p.suffix[1:])):
            start = self._segments[-1].end if self._segments else int(path.suffix[1:])
            place = path if path.name == f"log.{start}" else path.rename(path.with_name(f"log.{start}"))
            self._segments.append(_Segment(start, place.stat().st_size, place))
        self._sent = _NEVER

    @property
    def end(self) -> int:
        return self._segments[-1].end if self._segments else 0

    def append(self, data: bytes) -> None:
        with self._lock:
            rest = memoryview(data)
            while rest:
                rest = rest[self._write(rest) :]
            self._trim()

    def read(self, offset: int, limit: int, final: bool) -> tuple[int, bytes]:
        """Bytes from `offset`, or from the oldest that is left, with their offset.

        While the log grows, no more than a segment's worth: what was once sent can't be dropped to make room.
        """
        with self._lock:
            if self._segments:
                offset = max(offset, self._segments[0].start)
            parts, at, room = [], offset, limit if final else min(limit, self._each)
            for segment in self._segments:
                if at < segment.end and room > 0:
                    parts.append(_read(segment, at - segment.start, room))
                    at += len(parts[-1])
                    room -= len(parts[-1])
            self._sent = max(self._sent, at)
            return offset, b"".join(parts)

    def ack(self, offset: int) -> None:
        """The server has everything before this offset."""
        with self._lock:
            self._acked = max(self._acked, offset)

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _write(self, data: memoryview) -> int:
        """Appends as much as goes into one segment and returns how much that was."""
        segment = self._current()
        if segment.path is None:
            part = data[: max(1, MEMORY_LIMIT // SEGMENTS - segment.size)]
            segment.data += part
            segment.size += len(part)
            return len(part)
        try:
            written = os.write(self._fd, data[: self._each - segment.size])
        except OSError:  # full, over quota, gone read-only: output goes to memory until the disk takes it again
            self._disk_from = time.monotonic() + DISK_RETRY
            self.close()
            if not segment.size:
                self._remove(segment)
            self._segments.append(_Segment(self.end if self._segments else segment.start))
            return 0
        segment.size += written
        return written

    def _current(self) -> _Segment:
        last = self._segments[-1] if self._segments else None
        if last and last.path and self._fd >= 0 and last.size < self._each:
            return last
        start = last.end if last else 0
        if time.monotonic() >= self._disk_from:
            self.close()
            path = self._folder / f"log.{start}"
            try:
                self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_TRUNC, 0o600)
                self._segments.append(_Segment(start, path=path))
                return self._segments[-1]
            except OSError:
                self._disk_from = time.monotonic() + DISK_RETRY
        if last is None or last.path or last.dropped or last.size >= MEMORY_LIMIT // SEGMENTS:
            self._segments.append(_Segment(start))
        return self._segments[-1]

    def _trim(self) -> None:
        for on_disk, limit in ((True, self._limit), (False, MEMORY_LIMIT)):
            while sum(s.size for s in self._segments if (s.path is not None) == on_disk and not s.dropped) > limit:
                if self._segments[0].end <= self._acked and len(self._segments) > 1:
                    self._remove(self._segments[0])
                elif not self._squeeze(on_disk):
                    break

    def _squeeze(self, on_disk: bool) -> bool:
        """Drops the oldest segment that was never sent, leaving a note in its place. False when there is none."""
        for at, victim in enumerate(self._segments[:-1]):
            if victim.start < self._sent or victim.dropped or (victim.path is not None) != on_disk:
                continue
            before = self._segments[at - 1] if at else None
            if before and before.dropped and before.start >= self._sent:
                before.dropped += victim.size
                self._write_note(before)
                self._remove(victim)
            elif victim.size >= _EACH_MIN:
                victim.dropped = victim.size
                self._write_note(victim)
            else:
                continue
            self._close_gaps()
            return True
        return False

    def _write_note(self, note: _Segment) -> None:
        text = NOTE_LINE.format(note.dropped).encode()
        note.size, note.data = len(text), bytearray()
        if note.path is None:
            note.data = bytearray(text)
            return
        try:
            draft = note.path.with_name(".note")
            draft.write_bytes(text)
            draft.replace(note.path)
        except OSError:
            note.path.unlink(missing_ok=True)
            note.path, note.data = None, bytearray(text)

    def _close_gaps(self) -> None:
        """Renumbers from the oldest on, so that a crash half-way leaves the order right and nothing overlapping."""
        for before, segment in zip(self._segments, self._segments[1:], strict=False):
            if segment.start != before.end:
                segment.start = before.end
                if segment.path:
                    segment.path = segment.path.rename(segment.path.with_name(f"log.{segment.start}"))

    def _remove(self, segment: _Segment) -> None:
        self._segments.remove(segment)
        if segment.path:
            segment.path.unlink(missing_ok=True)


def _read(segment: _Segment, at: int, limit: int) -> bytes:
    limit = min(limit, segment.size - at)
    if segment.path is None:
        return bytes(segment.data[at : at + limit])
    with segment.path.open("rb") as file:
        file.seek(at)
        return file.read(limit)
