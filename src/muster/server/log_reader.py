"""Reads a job's output for the API: forwards in pages, or the last lines of each rank; marks where output is missing.

Every answer costs as much as it returns: the last lines are read from the end, and nothing is read that is not sent.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from muster.api.jobs import LogChunkView, OutputView
from muster.core.job import Job
from muster.core.units import format_size
from muster.server.leader import Leader
from muster.store.base import LogChunk, LogSize, Store

TAIL_BYTES: Final = 8 << 20  # maximum size of one answer with the last lines of all ranks
TAIL_RANKS: Final = 1024
_RANK_BYTES: Final = 4096  # minimum share of a rank
_PAGE: Final = 256  # chunks per read
_FIRST_LOOK: Final = 1  # bytes: a single chunk, which usually holds the requested lines
_SECOND_LOOK: Final = 64 << 10

Key = tuple[int, int]  # attempt and rank


def limit_of(leader: Leader, job: Job) -> int:
    """Bytes of output kept per rank of the job."""
    return leader.log_limit if job.spec.log_limit is None else job.spec.log_limit


def output_view(leader: Leader, job: Job) -> OutputView:
    """How much the ranks wrote and how much of it is kept; `ranks` lists those with missing output."""
    sizes = leader.store.log_sizes(job.id)
    cut = [size for size in sizes if size.kept < size.written]
    return {
        "kept": sum(size.kept for size in sizes),
        "dropped": sum(size.written - size.kept for size in cut),
        "limit": limit_of(leader, job),
        "ranks": [
            {"attempt": size.attempt, "rank": size.rank, "kept": size.kept, "dropped": size.written - size.kept}
            for size in cut[-TAIL_RANKS:]
        ],
    }


class LogReader:
    """Reads a job's output from where the last read ended. A view with `dropped` represents missing output.

    Output that was already returned does not count as missing, even if it has been dropped since.
    """

    def __init__(
        self,
        leader: Leader,
        job: Job,
        attempt: int | None,
        rank: int | None,
        after: int,
        since: float | None = None,
    ) -> None:
        self._store: Store = leader.store
        self._job, self._attempt, self._rank, self.after = job.id, attempt, rank, after
        self._since = since
        self._limit = limit_of(leader, job)
        self._sent: dict[Key, int] = {}  # end offset of what was returned
        self._written: dict[Key, int] = {}  # cache for one call

    def read(self, limit: int) -> tuple[list[LogChunkView], bool]:
        """Views of about `limit` bytes, and whether that was everything so far."""
        self._written.clear()
        views: list[LogChunkView] = []
        size = 0
        while size < limit:
            found = self._page(limit - size)
            if not found:
                return views, True
            for attempt, chunk in found:
                views += self._views(attempt, chunk)
                size += len(chunk.data)
                self.after = chunk.id
        return views, False

    def back(self, before: int, limit: int) -> tuple[list[LogChunkView], int, bool]:
        """Views of about `limit` bytes that end before a chunk, the first chunk's id, and whether it is the first."""
        self._written.clear()
        numbers = [self._attempt] if self._attempt is not None else [a.number for a in self._store.attempts(self._job)]
        found: list[tuple[int, LogChunk]] = []
        size = 0
        for number in reversed(numbers):  # the later attempt has the later output
            at = before
            while size < limit and (
                some := self._store.logs(
                    self._job, number, self._rank, 0, _PAGE, before=at, since=self._since, most=limit - size, last=True
                )
            ):
                found += [(number, chunk) for chunk in some]
                size += sum(len(chunk.data) for chunk in some)
                at = some[-1].id
            if size >= limit:
                break
        found.sort(key=lambda one: one[1].id)
        views = [view for number, chunk in found for view in self._views(number, chunk)]
        return views, found[0][1].id if found else before, size < limit

    def tail(self, lines: int) -> list[LogChunkView]:
        """The last lines of each rank of the newest attempt with output; later reads continue after them."""
        wanted = [size for size in self._store.log_sizes(self._job) if size.kept and self._wants(size)]
        newest = max((size.attempt for size in wanted), default=0)
        wanted = [size for size in wanted if size.attempt == newest]
        last = self._store.logs(self._job, newest, self._rank, 0, 1, last=True) if wanted else []
        self.after = max(self.after, last[0].id if last else 0)
        self._sent.update({(size.attempt, size.rank): size.written for size in wanted})
        if not lines:
            return []
        shown = wanted[:TAIL_RANKS]
        room = max(_RANK_BYTES, TAIL_BYTES // len(shown)) if shown else 0
        views = [view for size in shown if (view := self._rank_tail(size, lines, room)) is not None]
        views.sort(key=lambda view: int(view["id"]))
        if len(wanted) > len(shown):
            text = f"[muster] {len(wanted) - len(shown)} more ranks are not shown: ask for one of them alone\n"
            views.append({"id": self.after, "attempt": newest, "rank": wanted[-1].rank, "end": 0, "text": text})
        return views

    def _wants(self, size: LogSize) -> bool:
        return self._attempt in (None, size.attempt) and self._rank in (None, size.rank)

    def _page(self, most: int) -> list[tuple[int, LogChunk]]:
        """The next chunks in the order of arrival, over all attempts; none when there are no more."""
        numbers = [self._attempt] if self._attempt is not None else [a.number for a in self._store.attempts(self._job)]
        found: list[tuple[int, LogChunk]] = []
        bound: int | None = None  # later chunks wait for the next page: an attempt may have more before them
        for number in numbers:
            some = self._store.logs(
                self._job, number, self._rank, self.after, _PAGE, before=bound, since=self._since, most=most
            )
            if some:
                bound = some[-1].id + 1
                found += [(number, chunk) for chunk in some]
        return sorted((one for one in found if bound and one[1].id < bound), key=lambda one: one[1].id)

    def _views(self, attempt: int, chunk: LogChunk) -> Iterator[LogChunkView]:
        key = (attempt, chunk.rank)
        begin = self._sent.get(key, chunk.before)
        if chunk.offset > begin and chunk.offset > chunk.before:
            # Its id covers everything sent before it: a client that stops here gets the following chunk next.
            yield {
                "id": chunk.id - 1,
                "attempt": attempt,
                "rank": chunk.rank,
                "offset": begin,
                "end": chunk.offset,
                "dropped": chunk.offset - begin,
                "text": self._marker(chunk.rank, chunk.offset - begin, self._written_by(key)),
            }
        self._sent[key] = max(begin, chunk.end)
        view: LogChunkView = {
            "id": chunk.id,
            "attempt": attempt,
            "rank": chunk.rank,
            "offset": chunk.offset,
            "end": chunk.end,
            "text": chunk.data.decode(errors="replace"),
        }
        if chunk.time is not None:
            view["times"] = [(0, chunk.time)]
        yield view

    def _rank_tail(self, size: LogSize, lines: int, room: int) -> LogChunkView | None:
        """The last lines of a rank. Reads backwards, chunk by chunk, until it has the lines or they fill the room."""
        parts: list[bytes] = []
        moments: list[tuple[int, float]] = []  # bytes from the end, and when those from there on were written
        found, total, before, newest = 0, 0, self.after + 1, None
        most = _FIRST_LOOK
        while found <= lines and total < room:
            page = self._store.logs(
                self._job,
                size.attempt,
                size.rank,
                0,
                _PAGE,
                before=before,
                since=self._since,
                most=min(most, room - total),
                last=True,
            )
            if not page:
                break
            newest = newest or page[0]
            for chunk in page:
                gap = chunk.offset - chunk.before
                marker = self._marker(size.rank, gap, size.written).encode() if gap else b""
                parts += [chunk.data, marker]
                found += chunk.data.count(b"\n") + bool(gap)
                total += len(chunk.data) + len(marker)
                moments += [(total, chunk.time)] if chunk.time is not None else []
            before, most = page[-1].id, max(2 * total, _SECOND_LOOK)
        if newest is None:
            return None
        shown = _last_lines(_newest_bytes(parts, room), lines)
        if not shown:
            return None
        return {
            "id": newest.id,
            "attempt": size.attempt,
            "rank": size.rank,
            "end": newest.end,
            "text": shown.decode(errors="replace"),
            "times": _line_times(shown, moments),
        }

    def _written_by(self, key: Key) -> int:
        if key not in self._written:
            found = self._store.log_sizes(self._job)
            self._written = {(size.attempt, size.rank): size.written for size in found}
        return self._written.get(key, 0)

    def _marker(self, rank: int, missing: int, written: int) -> str:
        """The line that is shown in place of missing output."""
        why = "its worker could not keep them until the server was there to take them"
        if written > self._limit:
            limit = format_size(self._limit)
            why = f"past `log_limit` ({limit} of each rank) the first and the last part are kept"
        return f"[muster] {missing:,} bytes of the output of rank {rank} are missing here: {why}\n"


def _line_times(text: bytes, moments: Sequence[tuple[int, float]]) -> list[tuple[int, float]]:
    """Line numbers with their times, from times by their distance from the end, newest first."""
    found: dict[int, float] = {}
    line, at = 0, 0
    for back, moment in reversed(moments):
        begin = max(0, len(text) - back)
        line += text.count(b"\n", at, begin)
        at = begin
        found[line] = moment  # of several within a line the last
    return list(found.items())


def _newest_bytes(parts: Sequence[bytes], room: int) -> bytes:
    """The end of what was read backwards, cut to `room`; to whole lines, if it contains any line break."""
    data = b"".join(reversed(parts))
    if len(data) <= room:
        return data
    data = data[-room:]
    return data[data.find(b"\n", 0, -1) + 1 :]


def _last_lines(data: bytes, lines: int) -> bytes:
    """The last lines. Only a line feed ends a line, as in a terminal."""
    at = len(data) - data.endswith(b"\n")
    for _ in range(lines):
        at = data.rfind(b"\n", 0, at)
        if at < 0:
            return data
    return data[at + 1 :]
