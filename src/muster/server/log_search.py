"""Searches a job's output line by line for a text or a pattern. A line is of one rank, whatever chunks it is stored in.

Threads read and unpack blocks of chunks ahead of the search, and tell whether anything in them matches: only then are
their lines looked at. A search may end between any two blocks and go on later: no line is found twice, and none is
missed.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final

from muster.store.base import LogChunk, Store

_BLOCK: Final = 4 << 20  # bytes that are searched at once, roughly
_THREADS: Final = 3
_PAGE: Final = 256  # chunks in one read
_LONGEST: Final = 1 << 20  # bytes of a line; what is longer is taken for several


@dataclass(frozen=True, slots=True)
class LogQuery:
    job: str
    attempts: Sequence[int]
    rank: int | None  # None: all
    pattern: Any  # of RE2
    limit: int


@dataclass(frozen=True, slots=True)
class Line:
    """A line that was found. `chunk` has its beginning; `end` is the id of the chunk with its end."""

    attempt: int
    chunk: LogChunk
    offset: int  # in the rank's output
    end: int


@dataclass(frozen=True, slots=True)
class Place:
    """Where a search goes on: at the lines that end in a chunk, so many of which were told."""

    attempt: int
    chunk: int = 0
    told: int = 0

    def __str__(self) -> str:
        return f"{self.attempt}.{self.chunk}.{self.told}"


@dataclass(slots=True)
class Found:
    lines: list[Line] = field(default_factory=list)
    searched: int = 0  # bytes
    goes_on: Place | None = None  # None: everything was searched


def search(store: Store, want: LogQuery, begin: Place | None, enough: Callable[[], bool]) -> Found:
    """Searches from a place on, until there are as many lines as wanted or `enough` says so."""
    found = Found()
    for attempt in want.attempts:
        if begin is not None and attempt < begin.attempt:
            continue
        start = begin if begin is not None and begin.attempt == attempt else Place(attempt)
        found.goes_on = _AttemptSearch(store, want, start, found).run(enough)
        if found.goes_on is not None:
            break
    return found


class _AttemptSearch:
    """Lines are told in the order in which they end, so that none is left behind where a search stops."""

    def __init__(self, store: Store, want: LogQuery, begin: Place, found: Found) -> None:
        self._store, self._want, self._begin, self._found = store, want, begin, found
        self._ranks: dict[int, _Rank] = {}
        self._skip = begin.told
        self._told = (begin.chunk, begin.told)  # the chunk of the last line that was told, and how many of it
        self._most = want.limit + begin.told + 1  # lines of a block that can be of use

    def run(self, enough: Callable[[], bool]) -> Place | None:
        """Where to go on; None if the attempt was searched to its end."""
        ranges = self._ranges()
        with ThreadPoolExecutor(_THREADS) as pool:
            for at, parts in enumerate(_ahead(pool, ranges, self._parts)):
                goes_on = self._take(self._searched(parts))
                if goes_on is None and enough():
                    goes_on = Place(self._begin.attempt, ranges[at][1])
                if goes_on is not None:
                    return goes_on
        return self._take(self._rests(ranges[-1][1] if ranges else self._begin.chunk))

    def _ranges(self) -> list[tuple[int, int]]:
        """Ranges of chunk ids with about `_BLOCK` bytes each."""
        first = self._logs(self._want.rank, max(0, self._begin.chunk - 1), None, 1)
        last = self._logs(self._want.rank, 0, None, 1, last=True)
        if not first:
            return []
        low, high = first[0].id, last[0].id + 1
        blocks = min(high - low, kept_bytes(self._store, self._want, self._begin.attempt) // _BLOCK + 1)
        return list(pairwise(low + (high - low) * at // blocks for at in range(blocks + 1)))

    def _parts(self, ids: tuple[int, int]) -> list[_Part]:
        """The output of each rank in a range of chunks, looked through. Runs in threads: it is what takes long."""
        by_rank: dict[int, list[LogChunk]] = {}
        after = ids[0] - 1
        while after + 1 < ids[1] and (some := self._logs(self._want.rank, after, ids[1])):
            for chunk in some:
                by_rank.setdefault(chunk.rank, []).append(chunk)
            after = some[-1].id
        return [_Part(chunks, _may_match(chunks, self._want.pattern)) for chunks in by_rank.values()]

    def _logs(
        self, rank: int | None, after: int, before: int | None, limit: int = _PAGE, last: bool = False
    ) -> list[LogChunk]:
        job, attempt = self._want.job, self._begin.attempt
        return self._store.logs(job, attempt, rank, after, limit, before=before, most=2 * _BLOCK, last=last)

    def _searched(self, parts: Sequence[_Part]) -> list[Line]:
        """The matching lines that end in these parts."""
        lines: list[Line] = []
        for part in parts:
            self._found.searched += sum(len(chunk.data) for chunk in part.chunks)
            rank = part.chunks[0].rank
            if rank not in self._ranks:
                begun = self._begun(rank, part.chunks[0].id) if self._begin.chunk else _Rank(self._begin.attempt)
                self._ranks[rank] = begun
            lines += self._ranks[rank].take(part, self._want.pattern, self._most)
        return sorted(lines, key=lambda line: (line.end, line.offset))

    def _begun(self, rank: int, before: int | None) -> _Rank:
        """A rank with the line that it is within before a chunk, which an earlier search has seen the beginning of."""
        found: list[LogChunk] = []
        while len(found) < _PAGE and (some := self._logs(rank, 0, found[0].id if found else before, 1, last=True)):
            found[:0] = some
            if b"\n" in some[0].data:
                break
        made = _Rank(self._begin.attempt)
        if found:
            made.add(_Text.of(found))
            made.leave_out()
        return made

    def _rests(self, end: int) -> list[Line]:
        """The matching lines that nothing ends. They are told last, in the order of their ranks."""
        lines: list[Line] = []
        sizes = [one.rank for one in self._store.log_sizes(self._want.job) if one.attempt == self._begin.attempt]
        for rank in sizes:
            if self._want.rank in (None, rank) and (rank in self._ranks or self._begin.chunk):
                stream = self._ranks.get(rank) or self._begun(rank, None)
                lines += stream.search(self._want.pattern, self._most, rest=end)
        return lines

    def _take(self, lines: Sequence[Line]) -> Place | None:
        """Takes as many as are wanted; where to go on if there are more."""
        for line in lines:
            if line.end == self._begin.chunk and self._skip:
                self._skip -= 1
                continue
            chunk, told = self._told if self._told[0] == line.end else (line.end, 0)
            if len(self._found.lines) == self._want.limit:
                return Place(line.attempt, chunk, told)
            self._told = (chunk, told + 1)
            self._found.lines.append(line)
        return None


@dataclass(frozen=True, slots=True)
class _Part:
    """Consecutive output of one rank. `hit`: a whole line of it may match; without, only its first and last may."""

    chunks: Sequence[LogChunk]
    hit: bool

    def text(self) -> _Text:
        return _Text.of(self.chunks)

    def first_line(self) -> _Text | None:
        """What ends the line that began before it; None if no line ends here."""
        at = next((at for at in range(len(self.chunks)) if self._ends(at)), None)
        if at is None:
            return None
        text = _Text.of(self.chunks[: at + 1])
        return text.until(text.text.find(b"\n") + 1)

    def last_line(self) -> _Text:
        """What no line end follows."""
        at = next((at for at in reversed(range(len(self.chunks))) if self._ends(at)), 0)
        text = _Text.of(self.chunks[at:])
        return text.since(text.text.rfind(b"\n") + 1)

    def _ends(self, at: int) -> bool:
        """Whether a line ends in a chunk, or at the gap before it."""
        return b"\n" in self.chunks[at].data or (at > 0 and _gap(self.chunks[at - 1], self.chunks[at]))


def _may_match(chunks: Sequence[LogChunk], pattern: Any) -> bool:
    """Whether a line matches: first each chunk alone, which copies nothing, then the lines across their ends."""
    begun: list[bytes] = []  # the line that has not ended, in the chunks before
    for at, chunk in enumerate(chunks):
        data = chunk.data
        if pattern.search(data) is not None:
            return True
        if at and _gap(chunks[at - 1], chunk):
            if len(begun) > 1 and pattern.search(b"".join(begun)) is not None:
                return True
            begun = []
        end = data.find(b"\n") + 1
        if begun and end and pattern.search(b"".join((*begun, data[:end]))) is not None:
            return True
        begun = [data[data.rfind(b"\n") + 1 :]] if end else [*begun, data]
    return False


def _gap(chunk: LogChunk, following: LogChunk) -> bool:
    """Whether something is missing between two chunks. It ends a line."""
    return chunk.end != following.offset


@dataclass(frozen=True, slots=True)
class _Text:
    """The bytes of consecutive chunks of one rank."""

    text: bytes
    starts: Sequence[int]  # where each chunk begins in the text
    chunks: Sequence[LogChunk]

    @classmethod
    def of(cls, chunks: Sequence[LogChunk]) -> _Text:
        parts: list[bytes] = []
        starts: list[int] = []
        at = 0
        for index, chunk in enumerate(chunks):
            if index and _gap(chunks[index - 1], chunk):
                parts.append(b"\n")
                at += 1
            starts.append(at)
            parts.append(chunk.data)
            at += len(chunk.data)
        return cls(b"".join(parts), starts, chunks)

    def until(self, end: int) -> _Text:
        """Its first bytes."""
        count = bisect_left(self.starts, end)
        return _Text(self.text[:end], self.starts[:count], self.chunks[:count])

    def since(self, begin: int) -> _Text:
        """All but its first bytes."""
        first = max(0, bisect_right(self.starts, begin) - 1)
        return _Text(self.text[begin:], [at - begin for at in self.starts[first:]], self.chunks[first:])


class _Rank:
    """The output of a rank that was not searched yet."""

    def __init__(self, attempt: int) -> None:
        self._attempt = attempt
        self._text = b""
        self._starts: list[int] = []  # where each chunk begins in the text
        self._chunks: list[LogChunk] = []

    def take(self, part: _Part, pattern: Any, most: int) -> list[Line]:
        """The matching lines that end in a part. Keeps the beginning of the line that does not."""
        first = None if part.hit else part.first_line()
        if first is None:
            self.add(part.text())
            return self.search(pattern, most)
        lines: list[Line] = []
        if self._text:  # the line that began before this part: alone neither of its halves may match
            self.add(first)
            lines = self.search(pattern, most)
        self._text, self._starts, self._chunks = b"", [], []
        self.add(part.last_line())
        return lines

    def add(self, part: _Text) -> None:
        gap = b"\n" if self._text and _gap(self._chunks[-1], part.chunks[0]) else b""
        at = len(self._text) + len(gap)
        self._starts += [at + start for start in part.starts]
        self._chunks += part.chunks
        self._text = b"".join((self._text, gap, part.text))

    def search(self, pattern: Any, most: int, rest: int | None = None) -> list[Line]:
        """Takes whole lines off it and tells which match; with `rest` also the last, as if it ended in that chunk."""
        text = self._text
        whole = rest is not None or (len(text) > _LONGEST and b"\n" not in text)
        end, at = len(text) if whole else text.rfind(b"\n") + 1, 0
        lines: list[Line] = []
        while at < end and len(lines) < most and (match := pattern.search(text, at, end)) is not None:
            begin = text.rfind(b"\n", at, match.start()) + 1 or at
            at = text.find(b"\n", match.start(), end) + 1 or end
            lines.append(self._line(begin, self._chunk(at - 1).id if rest is None else rest))
        self._drop(end)
        return lines

    def leave_out(self) -> None:
        """Drops whole lines."""
        self._drop(self._text.rfind(b"\n") + 1)

    def _chunk(self, place: int) -> LogChunk:
        return self._chunks[max(0, bisect_right(self._starts, place) - 1)]

    def _line(self, begin: int, end: int) -> Line:
        at = bisect_right(self._starts, begin) - 1
        return Line(self._attempt, self._chunks[at], self._chunks[at].offset + begin - self._starts[at], end)

    def _drop(self, end: int) -> None:
        keep = max(0, bisect_right(self._starts, end) - 1)
        self._text, self._chunks = self._text[end:], self._chunks[keep:]
        self._starts = [start - end for start in self._starts[keep:]]


def kept_bytes(store: Store, want: LogQuery, attempt: int | None = None) -> int:
    """Bytes of output that are kept, of one attempt or of all that are wanted."""
    wanted = want.attempts if attempt is None else [attempt]
    sizes = store.log_sizes(want.job)
    return sum(one.kept for one in sizes if one.attempt in wanted and want.rank in (None, one.rank))


def _ahead(
    pool: ThreadPoolExecutor, ranges: Sequence[tuple[int, int]], read: Callable[[tuple[int, int]], list[_Part]]
) -> Iterator[list[_Part]]:
    """The output in each range, in order; that of the next ranges is read meanwhile."""
    waiting: list[Future[list[_Part]]] = []
    try:
        for at in range(len(ranges)):
            while len(waiting) <= _THREADS and at + len(waiting) < len(ranges):
                waiting.append(pool.submit(read, ranges[at + len(waiting)]))
            yield waiting.pop(0).result()
    finally:
        for one in waiting:
            one.cancel()
