"""A rank's stored output as a list in memory: pruning, and windows of it."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from operator import attrgetter
from typing import TypeVar

from muster.store.base import LogChunk

T = TypeVar("T")
_id = attrgetter("id")


class ListedChunks:
    """`log_limit.Chunks` over a list, oldest first; changes the list in place."""

    def __init__(self, chunks: list[LogChunk]) -> None:
        self._chunks = chunks

    def last_within(self, offset: int) -> int:
        at = bisect_right(self._chunks, offset, key=attrgetter("end"))
        return self._chunks[at - 1].id if at else 0

    def after(self, chunk: int, limit: int) -> Sequence[tuple[int, int]]:
        at = bisect_right(self._chunks, chunk, key=_id)
        return [(one.id, len(one.data)) for one in self._chunks[at : at + limit]]

    def upto(self, chunk: int, limit: int) -> Sequence[tuple[int, int]]:
        at = bisect_right(self._chunks, chunk, key=_id)
        return [(one.id, len(one.data)) for one in reversed(self._chunks[max(0, at - limit) : at])]

    def data(self, chunk: int) -> bytes:
        return self._chunks[self._place(chunk)].data

    def drop(self, chunks: Sequence[int]) -> None:
        if chunks:  # they are adjacent
            first, last = self._place(min(chunks)), self._place(max(chunks))
            del self._chunks[first : last + 1]

    def shorten(self, chunk: int, start: int, stop: int) -> None:
        at = self._place(chunk)
        whole = self._chunks[at]
        self._chunks[at] = replace(whole, offset=whole.offset + start, data=whole.data[start:stop])

    def _place(self, chunk: int) -> int:
        return bisect_left(self._chunks, chunk, key=_id)


def window(chunks: Sequence[LogChunk], after: int, before: int | None, last: bool) -> Iterator[LogChunk]:
    """Chunks with an id above `after` and below `before`, each with the end of the previous one."""
    first = bisect_right(chunks, after, key=_id)
    end = len(chunks) if before is None else bisect_left(chunks, before, key=_id)
    for at in range(end - 1, first - 1, -1) if last else range(first, end):
        yield replace(chunks[at], before=chunks[at - 1].end if at else 0)


def within(found: Iterable[T], most: int | None, size: Callable[[T], int]) -> list[T]:
    """The first items, as many as have `most` bytes together, but at least one."""
    taken: list[T] = []
    total = 0
    for one in found:
        total += size(one)
        if taken and most is not None and total > most:
            break
        taken.append(one)
    return taken
