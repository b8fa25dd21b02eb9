"""A rank's log on disk: a stream of bytes in segments, kept within a limit and read by offset for shipping.

A segment is named by the offset of its first byte in the stream, and ends at the end of a line. What the server has is
dropped first. If the server could not take enough, the first half of the limit and the newest bytes are kept, and the
segments between them are dropped: that leaves a gap in the offsets, from which the server knows how much is missing.
While the disk refuses writes, segments are kept in memory.
"""

from __future__ import annotations

import os
import threading
import time
from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field
from operator import itemgetter
from pathlib import Path
from typing import Final

from muster import wire

SEGMENTS: Final = 8
MEMORY_LIMIT: Final = 8 << 20  # bytes per rank that are kept when the disk is full
DISK_RETRY: Final = 1.0  # seconds
TIMES: Final = 2048  # moments that are remembered of the bytes that were not shipped yet
TIME_STEP: Final = 0.1  # seconds between two moments at first; doubled when there are too many
LINE_MAX: Final = 64 << 10  # bytes by which a segment may exceed its size, to end with a line
_NEWLINE: Final = 10


@dataclass(slots=True, eq=False)
class _Segment:
    start: int
    size: int = 0
    path: Path | None = None  # None: in memory
    data: bytearray = field(default_factory=bytearray)
    full: bool = False

    @property
    def end(self) -> int:
        return self.start + self.size


class LogStore:
    """One log. The launcher's loop calls `append`, the shipper's thread `read` and `ack`."""

    def __init__(self, folder: Path, limit: int) -> None:
        self._folder = folder
        self._limit = limit
        self._each = max(1, limit // SEGMENTS)
        self._line = min(LINE_MAX, self._each)
        self._lock = threading.Lock()
        self._segments: list[_Segment] = []
        self._fd = -1
        self._disk_from = 0.0  # monotonic time of the next attempt to write to disk
        self._acked = 0
        self._held = {True: 0, False: 0}  # bytes on disk, and in memory
        self._times: list[tuple[int, float]] = []  # offsets, and when the bytes from each of them on were written
        self._time_step = TIME_STEP

    def recover(self) -> None:
        """Loads what a dead launcher left."""
        names = [p for p in self._folder.glob("log.*") if p.suffix[1:].isdigit()]
        for path in sorted(names, key=lambda p: int(p.suffix[1:])):
            if size := path.stat().st_size:
                self._segments.append(_Segment(int(path.suffix[1:]), size, path, full=True))
                self._held[True] += size

    @property
    def end(self) -> int:
        return self._segments[-1].end if self._segments else 0

    def append(self, data: bytes) -> None:
        with self._lock:
            self._note_time()
            rest = memoryview(data)
            while rest:
                rest = rest[self._write(rest) :]
            self._trim()

    def read(self, offset: int, limit: int) -> tuple[int, bytes]:
        """Bytes from `offset`, or from the next offset that is left, with their offset; up to the next gap."""
        with self._lock:
            parts: list[bytes] = []
            at, room = offset, limit
            for segment in self._segments:
                if at >= segment.end or room <= 0:
                    continue
                if at < segment.start:
                    if parts:
                        break
                    offset = at = segment.start
                parts.append(_read(segment, at - segment.start, room))
                at += len(parts[-1])
                room -= len(parts[-1])
            return offset, b"".join(parts)

    def times(self, start: int, end: int) -> tuple[tuple[int, float], ...]:
        """When the bytes in this range were written: the first moment is that of `start`."""
        with self._lock:
            first = bisect_right(self._times, start, key=itemgetter(0)) - 1
            found = self._times[max(0, first) : bisect_left(self._times, end, key=itemgetter(0))]
            found = found[:: -(-len(found) // wire.PIECE_TIMES)] if found else []
            return tuple((max(start, offset), moment) for offset, moment in found)

    def ack(self, offset: int) -> None:
        """Records that the server has everything before this offset."""
        with self._lock:
            self._acked = max(self._acked, offset)
            del self._times[: max(0, bisect_right(self._times, self._acked, key=itemgetter(0)) - 1)]

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _note_time(self) -> None:
        now = time.time()
        if self._times and abs(now - self._times[-1][1]) < self._time_step:
            return
        self._times.append((self.end, now))
        if len(self._times) > TIMES:
            self._times, self._time_step = self._times[::2], 2 * self._time_step

    def _write(self, data: memoryview) -> int:
        """Appends as much as fits into one segment and returns how much that was."""
        segment = self._current()
        room = self._each if segment.path else min(self._each, MEMORY_LIMIT // SEGMENTS)
        size = _fitting(data, room - segment.size, self._line)
        if segment.path is None:
            segment.data += data[:size]
            written = size
        else:
            try:
                written = os.write(self._fd, data[:size])
            except OSError:  # full, over quota or read-only: output goes to memory until the disk accepts it again
                self._disk_from = time.monotonic() + DISK_RETRY
                self.close()
                start = segment.end
                if not segment.size:
                    self._remove(segment)
                self._segments.append(_Segment(start))
                return 0
        segment.size += written
        self._held[segment.path is not None] += written
        # It may exceed its size, but only to the end of the line.
        segment.full = segment.size >= room and (data[written - 1] == _NEWLINE or segment.size >= room + self._line)
        return written

    def _current(self) -> _Segment:
        last = self._segments[-1] if self._segments else None
        if last and last.path and self._fd >= 0 and not last.full:
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
        if last is None or last.path or last.full:
            self._segments.append(_Segment(start))
        return self._segments[-1]

    def _trim(self) -> None:
        # Two segments more than the limit, so that each half is complete even when cut in whole segments.
        for on_disk, limit in ((True, self._limit + 2 * self._each), (False, MEMORY_LIMIT)):
            while self._held[on_disk] > limit:
                if self._segments[0].end <= self._acked and len(self._segments) > 1:
                    self._remove(self._segments[0])
                elif (victim := self._victim(on_disk)) is not None:
                    self._remove(victim)
                else:
                    break

    def _victim(self, on_disk: bool) -> _Segment | None:
        """The oldest segment past the first half of the limit that is no longer written to."""
        head = self._limit // 2 if on_disk else min(self._limit, MEMORY_LIMIT) // 2
        for segment in self._segments[:-1]:
            if segment.start >= head and (segment.path is not None) == on_disk:
                return segment
        return None

    def _remove(self, segment: _Segment) -> None:
        self._segments.remove(segment)
        self._held[segment.path is not None] -= segment.size
        if segment.path:
            segment.path.unlink(missing_ok=True)


def _fitting(data: memoryview, room: int, line: int) -> int:
    """How many of these bytes fit into a segment with this much room:
    up to the last end of line that fits, else up to the first one after it."""
    if len(data) <= room:
        return len(data)
    if fits := bytes(data[: max(0, room)]).rfind(b"\n") + 1:
        return fits
    beyond = max(1, room) + line
    return bytes(data[:beyond]).find(b"\n") + 1 or min(len(data), beyond)


def _read(segment: _Segment, at: int, limit: int) -> bytes:
    limit = min(limit, segment.size - at)
    if segment.path is None:
        return bytes(segment.data[at : at + limit])
    with segment.path.open("rb") as file:
        file.seek(at)
        return file.read(limit)
