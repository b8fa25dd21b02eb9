"""A rank's stored output as rows: pruning, and pages that read no more than they return."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any, Final

from sqlalchemy import Connection, Integer, Select, bindparam, delete, func, select, update

from muster.store import tables
from muster.store.base import LogChunk, StreamWrite
from muster.store.codec import pack, unpack
from muster.store.log_list import within

_AT_ONCE: Final = 500  # maximum ids in one statement
_chunks = tables.log_chunks.c


class StoredChunks:
    """`log_limit.Chunks` over the rows of the rank of a write, within the write's transaction."""

    def __init__(self, connection: Connection, write: StreamWrite) -> None:
        self._connection = connection
        same_attempt = (_chunks.job == write.job) & (_chunks.attempt == write.attempt)
        self._own = same_attempt & (_chunks.rank == write.rank)

    def last_within(self, offset: int) -> int:
        query = select(func.max(_chunks.id)).where(self._own, _chunks.start + _chunks.length <= offset)
        return self._connection.execute(query).scalar() or 0

    def after(self, chunk: int, limit: int) -> Sequence[tuple[int, int]]:
        query = select(_chunks.id, _chunks.length).where(self._own, _chunks.id > chunk)
        return [(id_, length) for id_, length in self._connection.execute(query.order_by(_chunks.id).limit(limit))]

    def upto(self, chunk: int, limit: int) -> Sequence[tuple[int, int]]:
        query = select(_chunks.id, _chunks.length).where(self._own, _chunks.id <= chunk)
        rows = self._connection.execute(query.order_by(_chunks.id.desc()).limit(limit))
        return [(id_, length) for id_, length in rows]

    def data(self, chunk: int) -> bytes:
        query = select(_chunks.data, _chunks.length).where(_chunks.id == chunk)
        return unpack(*self._connection.execute(query).one())

    def drop(self, chunks: Sequence[int]) -> None:
        if chunks:
            self._connection.execute(delete(tables.log_chunks).where(_chunks.id.in_(chunks)))

    def shorten(self, chunk: int, start: int, stop: int) -> None:
        rest = self.data(chunk)[start:stop]
        values = {"start": _chunks.start + start, "length": len(rest), "data": pack(rest)}
        self._connection.execute(update(tables.log_chunks).where(_chunks.id == chunk).values(values))


def page(
    job: str,
    attempt: int,
    rank: int | None,
    after: int,
    limit: int,
    before: int | None,
    since: float | None,
    last: bool,
) -> tuple[Select[Any], dict[str, Any]]:
    """Chunks without their data, each with the end of the previous chunk of its rank: a statement with its values."""
    options = {"of_rank": rank, "before": before, "since": since}
    given = {name: value for name, value in options.items() if value is not None}
    statement = _page(frozenset(given), last)
    return statement, {"of_job": job, "of_attempt": attempt, "after": after, "most": limit, **given}


@cache
def _page(given: frozenset[str], last: bool) -> Select[Any]:
    """Made once for each kind of page: to make it takes longer than to run it."""
    older = tables.log_chunks.alias().c
    same_rank = (older.job == _chunks.job) & (older.attempt == _chunks.attempt) & (older.rank == _chunks.rank)
    end_before = (
        select(older.start + older.length)
        .where(same_rank, older.id < _chunks.id)
        .order_by(older.id.desc())
        .limit(1)
        .scalar_subquery()
    )
    query = select(_chunks.id, _chunks.rank, _chunks.start, _chunks.length, func.coalesce(end_before, 0))
    of = (_chunks.job == bindparam("of_job")) & (_chunks.attempt == bindparam("of_attempt"))
    terms = {
        "before": _chunks.id < bindparam("before"),
        "since": _chunks.time >= bindparam("since"),
        "of_rank": _chunks.rank == bindparam("of_rank"),
    }
    query = query.where(of, _chunks.id > bindparam("after"), *(terms[name] for name in sorted(given)))
    return query.order_by(_chunks.id.desc() if last else _chunks.id).limit(bindparam("most", type_=Integer))


_data: Final = select(_chunks.id, _chunks.data, _chunks.time).where(_chunks.id.in_(bindparam("ids", expanding=True)))


def read(connection: Connection, query: Select[Any], values: dict[str, Any], most: int | None) -> list[LogChunk]:
    """The first chunks of a page that have `most` bytes together, but at least one."""
    rows = within(connection.execute(query, values), most, lambda row: int(row[3]))
    data: dict[int, tuple[bytes, float | None]] = {}
    for at in range(0, len(rows), _AT_ONCE):
        for row in connection.execute(_data, {"ids": [row[0] for row in rows[at : at + _AT_ONCE]]}):
            data[row.id] = (row.data, row.time)
    return [
        LogChunk(rank, start, unpack(data[id_][0], length), id_, end_before, data[id_][1])
        for id_, rank, start, length, end_before in rows
    ]
