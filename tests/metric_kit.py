"""For tests of the metric store: columns from lists, a store with its group commit, and every point as plain tuples."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from struct import pack
from typing import Any

from muster.store.base import Column, Record, StreamWrite
from muster.store.commit import GroupCommit
from muster.store.registry import open_store
from muster.store.sql import SqlStore
from muster.track.holders import Holder
from muster.track.metrics import Metrics
from muster.track.record_db import RecordDb
from muster.wire import Batch

Point = tuple[int, float, float]  # step, time, value
Seen = tuple[int, int, float, bytes]  # attempt, step, time, the bits of the value: a NaN equals itself


def column(points: Iterable[Point]) -> Column:
    steps, times, values = zip(*points, strict=True)
    return Column(array("q", steps), array("d", times), array("d", values))


def curve_of(steps: Iterable[int], scale: float = 1.0) -> Column:
    """Values that tell where they are from."""
    return column((step, 1000.0 + step, scale * step) for step in steps)


class MetricStore:
    """A store with metrics, without a server."""

    def __init__(self, url: str) -> None:
        self.url = url

    def open(self) -> None:
        store = open_store(self.url)
        assert isinstance(store, SqlStore)
        self.store = store
        self.commit = GroupCommit(store, on_commit=lambda events: None)
        self.commit.start()
        assert store.database is not None
        self.db = RecordDb(store.database, self.commit, lambda: 5.0)
        self.metrics = Metrics(self.db)

    def close(self) -> None:
        self.metrics.close()
        self.commit.close()
        self.store.close()

    def add(self, run: str, attempt: int, rank: int, **columns: Column) -> None:
        self.db.write(self.metrics.append(run, attempt, rank, columns))

    def count(self, table: str, run: str) -> int:
        with self.db.reading() as connection:
            return int(connection.exec_driver_sql(f"SELECT count(*) FROM {table} WHERE run = '{run}'").scalar_one())

    def seen(self, run: str, name: str, **which: object) -> list[Seen]:
        """Every point, superseded ones among them, unless told otherwise."""
        found = self.metrics.points(run, name, **{"superseded": True, **which})  # type: ignore[arg-type]
        columns = (found.attempt, found.step, found.time, found.value)
        return seen(zip(*(column.tolist() for column in columns), strict=True))


class PointIntake:
    """The least that takes in a batch: its points. `outside`: runs that are no jobs, with their projects."""

    def __init__(self, metrics: Metrics, outside: dict[str, str] | None = None) -> None:
        self.metrics, self.outside = metrics, outside or {}

    def open(self, run: str) -> str | None:
        return self.outside.get(run)

    def gone(self, run: str) -> bool:
        return False

    def records(
        self,
        run: str,
        attempt: int,
        project: str,
        batch: Batch,
        writes: Sequence[StreamWrite],
        docs: Sequence[tuple[int, dict[str, Any]]],
        now: float,
        holder: Holder | None = None,
    ) -> list[Record]:
        return [self.metrics.append(run, attempt, write.rank, write.columns) for write in writes]


@contextmanager
def metric_store(url: str) -> Iterator[MetricStore]:
    made = MetricStore(url)
    made.open()
    try:
        yield made
    finally:
        made.close()


def seen(points: Iterable[tuple[int, int, float, float]]) -> list[Seen]:
    return [(attempt, step, time, pack("<d", value)) for attempt, step, time, value in points]


def expected_points(attempt: int, points: Sequence[Point]) -> list[Seen]:
    return seen((attempt, *point) for point in points)
