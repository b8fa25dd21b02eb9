"""Which part of a rank's output is stored: all of it up to a limit; beyond it the first half and the newest part.

Offsets are those of the rank's stream, so missing output shows as a gap between two chunks, and nowhere else. Both
sides of a gap are at ends of lines, unless a line is longer than an eighth of the limit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, Protocol

from muster.store.base import StreamWrite

if TYPE_CHECKING:
    from muster.store.marks import Mark

CHUNK: Final = 64 << 10  # bytes of output in one row: the amount that is unpacked to read a single line
_PAGE: Final = 32  # chunks that are looked at together
_NEWEST: Final = 2**62  # an id that no chunk has
_LINE_CHUNKS: Final = 16  # maximum chunks that are searched for the end of a line


class Chunks(Protocol):
    """The stored chunks of one rank, ordered by id, which is also the order of offsets."""

    def last_within(self, offset: int) -> int:
        """The id of the last chunk that ends at this offset or before it; 0 when there is none."""

    def after(self, chunk: int, limit: int) -> Sequence[tuple[int, int]]:
        """Ids and lengths of the chunks after this one, oldest first."""

    def upto(self, chunk: int, limit: int) -> Sequence[tuple[int, int]]:
        """Ids and lengths of this chunk and those before it, newest first."""

    def data(self, chunk: int) -> bytes: ...

    def drop(self, chunks: Sequence[int]) -> None: ...

    def shorten(self, chunk: int, start: int, stop: int) -> None:
        """Keeps only these bytes of it."""


def parts(write: StreamWrite) -> list[tuple[int, bytes]]:
    """The parts of a write that are stored, with their offsets; leaves out what the limit would drop at once."""
    data, keep = write.log, write.keep
    if not data:
        return []
    if keep is None:
        return _cut(data, write.start, CHUNK)
    each = _each(keep)
    begins, ends = _left_out(write, keep)
    return _cut(data[:begins], write.start, each) + _cut(data[ends:], write.start + ends, each)


def _left_out(write: StreamWrite, keep: int) -> tuple[int, int]:
    """Which bytes of a write are not stored, from the first to before the last; none if the two are the same."""
    data, each, head = write.log, _each(keep), _head(keep)
    if write.end <= keep:  # nothing of the log has to go
        return len(data), len(data)
    begins = max(0, head - write.start)  # where the first half ends within this write
    begins = data.rfind(b"\n", max(0, begins - each), begins) + 1 or _whole_character(data, begins)
    ends = max(begins, len(data) - (keep - head))  # earlier bytes can't be kept
    if ends > begins:
        line = data.find(b"\n", ends - 1, ends + each) + 1
        ends = line or _whole_character(data, ends)
    return begins, ends


def end_line(chunks: Chunks, write: StreamWrite, mark: Mark) -> None:
    """Called before a write that leaves a gap: the last stored line is incomplete then, and is dropped."""
    mark.kept -= _end_with_a_line(chunks, _NEWEST, CHUNK if write.keep is None else _each(write.keep))


def is_over(write: StreamWrite, mark: Mark) -> bool:
    """Whether the stream of this write is a log beyond its limit."""
    if write.stream != "log" or write.keep is None:
        return False
    begins, ends = _left_out(write, write.keep)
    return mark.kept > write.keep or ends > begins


def prune(chunks: Chunks, write: StreamWrite, mark: Mark) -> None:
    """Drops what is beyond the limit from the log of this write. The write itself is already stored."""
    assert write.keep is not None
    first = mark.edge is None
    head = edge = chunks.last_within(_head(write.keep)) if mark.edge is None else mark.edge
    begins, ends = _left_out(write, write.keep)
    # What is before bytes that were left out goes too: otherwise there would be a second gap.
    before = chunks.last_within(write.start + ends) if ends > begins else 0
    last = 0
    while mark.kept > write.keep or edge < before:
        gone = []
        for chunk, length in chunks.after(edge, _PAGE)[:-1]:  # never the newest
            if mark.kept <= write.keep and chunk > before:
                break
            gone.append(chunk)
            mark.kept -= length
        if not gone:
            break
        edge = gone[-1]
        if mark.kept <= write.keep and edge > before:
            last = gone.pop()  # its last byte tells whether the next chunk starts with a new line
        chunks.drop(gone)
    mark.edge = edge
    if last:
        ended = chunks.data(last).endswith(b"\n")
        chunks.drop([last])
        mark.kept -= 0 if ended else _begin_with_a_line(chunks, last, _each(write.keep))
    if first:
        mark.kept -= _end_with_a_line(chunks, head, _each(write.keep))


def _begin_with_a_line(chunks: Chunks, after: int, most: int) -> int:
    """Drops the partial line at the start of the chunks after this one. Returns the bytes dropped, at most `most`."""
    found = chunks.after(after, _LINE_CHUNKS)
    gone: list[int] = []
    freed = 0
    for chunk, length in found:
        at = chunks.data(chunk).find(b"\n") + 1
        if freed + (at or length) > most:
            break
        if 0 < at < length:
            chunks.drop(gone)
            chunks.shorten(chunk, at, length)
            return freed + at
        if chunk == found[-1][0]:
            break  # it may be the newest, which is kept
        gone.append(chunk)
        freed += length
        if at:
            chunks.drop(gone)
            return freed
    return 0


def _end_with_a_line(chunks: Chunks, last: int, most: int) -> int:
    """Drops the partial line at the end of the chunks up to this one. Returns the bytes dropped, at most `most`."""
    gone: list[int] = []
    freed = 0
    for chunk, length in chunks.upto(last, _LINE_CHUNKS):
        stop = chunks.data(chunk).rfind(b"\n") + 1
        if freed + length - stop > most:
            break
        if stop:
            chunks.drop(gone)
            if stop < length:
                chunks.shorten(chunk, 0, stop)
            return freed + length - stop
        gone.append(chunk)
        freed += length
    return 0


def _cut(data: bytes, offset: int, each: int) -> list[tuple[int, bytes]]:
    """Chunks of at most `each` bytes; each ends at the end of a line, if it contains one."""
    found, at = [], 0
    while len(data) - at > each:
        stop = data.rfind(b"\n", at, at + each) + 1 or max(at + 1, _whole_character(data, at + each))
        found.append((offset + at, data[at:stop]))
        at = stop
    return [*found, (offset + at, data[at:])] if at < len(data) else found


def _head(keep: int) -> int:
    return keep // 2


def _each(keep: int) -> int:
    return min(CHUNK, max(1, keep // 8))


def _whole_character(data: bytes, at: int) -> int:
    """`at`, or the start of the UTF-8 character that it is in."""
    for back in range(min(3, at) + 1):
        if at - back >= len(data) or data[at - back] & 0xC0 != 0x80:
            return at - back
    return at
