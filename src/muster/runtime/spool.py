"""The reader of a rank's spool, and the segment format that reader and writer share.

A spool is a stream of records in files `spool.0`, `spool.1`, ... A segment's header says at which offset of the stream
it starts and how many bytes are committed in it; it is finished when it is sealed or when the next one exists.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Final

from muster import wire
from muster.runtime.untrusted import open_plain, remove

HEADER_BYTES: Final = wire.SEGMENT_HEADER.size
CAPACITY: Final = wire.SEGMENT_BYTES - HEADER_BYTES  # bytes of records in one segment


class SpoolDamaged(Exception):
    """The stream is damaged at `position`; `resume` is where it is valid again, None when that is not known (yet)."""

    def __init__(self, position: int, what: str, resume: int | None = None) -> None:
        super().__init__(f"the spool is damaged at offset {position}: {what}")
        self.position = position
        self.resume = resume


@dataclass(frozen=True, slots=True)
class Segment:
    number: int
    base: int  # offset in the stream of its first record
    end: int  # offset in the stream after its last committed record
    sealed: bool


class SpoolReader:
    """Reads a spool that another process is writing; for one thread.

    A reader on a weakly ordered processor may see a length before the bytes that it counts. So `read` returns only what
    was committed at an earlier look, by which time the bytes have arrived, unless `final` says that the rank is dead.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._finished: dict[int, Segment] = {}  # those with a successor: they no longer change
        self._segments: list[Segment] = []  # the valid ones, in order
        self._unsound: dict[int, str] = {}
        self._end = 0

    def committed(self) -> int:
        """The stream's current length in bytes, including dropped segments, from the files."""
        self._look()
        return self._end

    def read(self, from_offset: int, limit: int, final: bool) -> bytes:
        """Complete records from an offset at which one starts; at most `limit` bytes, or one record if that is longer.

        Raises SpoolDamaged when the data at `from_offset` is not valid; valid records before it are returned first.
        """
        trusted = self._end
        self._look()
        until = self._end if final else min(trusted, self._end)
        pieces: list[bytes] = []
        position, room = from_offset, limit
        try:
            while position < until and room > 0:
                piece = self._piece(position, until, room, alone=not pieces)
                if not piece:
                    break
                pieces.append(piece)
                position += len(piece)
                room -= len(piece)
            if position == self._end and room > 0:
                self._check_tail()
        except SpoolDamaged:
            if not pieces:
                raise
        return b"".join(pieces)

    def drop_before(self, offset: int) -> None:
        """Deletes segments that are completely before the offset.
        The newest stays: it says where the stream continues."""
        self._look()
        starts = {segment.number: segment.base for segment in self._segments}
        ends = {segment.number: segment.end for segment in self._segments}
        numbers = sorted([*starts, *self._unsound])
        for number, following in pairwise(numbers):
            end = ends.get(number, starts.get(following))
            if end is not None and end <= offset:
                remove(self._folder, segment_path(self._folder, number).name)
                self._finished.pop(number, None)

    def _look(self) -> None:
        numbers = segment_numbers(self._folder)
        found: list[Segment] = []
        self._unsound = {}
        for number in numbers:
            try:
                segment = self._finished.get(number) or read_segment(self._folder, number)
            except FileNotFoundError:
                continue  # dropped since it was listed
            except (OSError, ValueError) as error:
                self._unsound[number] = str(error)
                continue
            if number != numbers[-1]:
                self._finished[number] = segment
            if found and found[-1].end > segment.base:
                found[-1] = Segment(found[-1].number, found[-1].base, segment.base, found[-1].sealed)
            found.append(segment)
        self._segments = found
        if found:
            self._end = found[-1].end

    def _piece(self, position: int, until: int, room: int, alone: bool) -> bytes:
        """Complete records from one segment; empty when the next one exceeds the room and others came before."""
        at = bisect_right(self._segments, position, key=lambda segment: segment.base) - 1
        segment = self._segments[at] if at >= 0 else None
        if segment is None or position >= segment.end:
            raise self._damaged(position, "no segment holds it")
        there = min(segment.end, until) - position
        data = self._bytes(segment, position, min(there, max(room, wire.RECORD_HEADER.size)))
        sound, cut = whole_records(data)
        if sound == 0 and cut > len(data) and cut <= there:
            if not alone:
                return b""
            data = self._bytes(segment, position, cut)
            sound, cut = whole_records(data)
        if sound == 0:
            raise self._damaged(position, f"{len(data)} bytes of spool.{segment.number} that are not a record")
        return data[:sound]

    def _bytes(self, segment: Segment, position: int, length: int) -> bytes:
        try:
            fd = open_plain(self._folder, f"spool.{segment.number}")
            try:
                return os.pread(fd, length, HEADER_BYTES + position - segment.base)
            finally:
                os.close(fd)
        except OSError as error:
            raise self._damaged(position, f"spool.{segment.number} cannot be read: {error}") from error

    def _check_tail(self) -> None:
        last = self._segments[-1].number if self._segments else -1
        for number, what in self._unsound.items():
            if number > last:
                raise self._damaged(self._end, what)

    def _damaged(self, position: int, what: str) -> SpoolDamaged:
        return SpoolDamaged(position, what, next((s.base for s in self._segments if s.base > position), None))


def segment_path(folder: Path, number: int) -> Path:
    return folder / f"spool.{number}"


def segment_numbers(folder: Path) -> list[int]:
    """The segments that exist, in order; none when the folder is gone."""
    try:
        with os.scandir(folder) as entries:
            suffixes = [entry.name[len("spool.") :] for entry in entries if entry.name.startswith("spool.")]
    except (FileNotFoundError, NotADirectoryError):
        return []
    return sorted(int(suffix) for suffix in suffixes if suffix.isascii() and suffix.isdigit())


def read_segment(folder: Path, number: int) -> Segment:
    """Reads a segment's header. Raises ValueError for an invalid one."""
    name = f"spool.{number}"
    fd = open_plain(folder, name)
    try:
        raw = os.read(fd, HEADER_BYTES)
    finally:
        os.close(fd)
    if len(raw) < HEADER_BYTES:
        raise ValueError(f"{name} has {len(raw)} bytes; its header alone has {HEADER_BYTES}")
    magic, said, flags, base, committed = wire.SEGMENT_HEADER.unpack(raw)
    if magic != wire.SEGMENT_MAGIC or said != number:
        raise ValueError(
            f"{name} starts with {magic!r} and calls itself {said}; expected {wire.SEGMENT_MAGIC!r}, {number}"
        )
    if committed > CAPACITY or committed % 8 or base % 8:
        raise ValueError(f"{name} claims {committed} bytes from offset {base}; it has room for {CAPACITY}")
    return Segment(number, base, base + committed, bool(flags & wire.SEGMENT_SEALED))


def whole_records(data: bytes) -> tuple[int, int]:
    """The size in bytes of the complete records at the start of `data`, and the size of the record cut off after them.

    That size is 0 when nothing follows and -1 when what follows is not a record.
    """
    words = memoryview(data)[: len(data) & ~7].cast("Q")  # the header is one little-endian word
    at, count = 0, len(words)
    while at < count:
        head = words[at]
        kind, size = head & 0xFFFF, head >> 32
        least = wire.ROW_FIXED if kind == wire.KIND_ROW else 16  # two bytes of JSON, padded
        if kind not in (wire.KIND_ROW, wire.KIND_SHAPE, wire.KIND_DOC) or size % 8 or not least <= size <= CAPACITY:
            return at * 8, -1
        words_each = size // 8
        if at + words_each > count:
            return at * 8, size
        last = count - words_each
        while at <= last and words[at] == head:  # rows of one shape often come in thousands
            at += words_each
    return at * 8, 0 if len(data) % 8 == 0 else -1
