"""The metric store's interface to the rest of the platform."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np
from sqlalchemy import Connection, delete, select, update

from muster.core.errors import Invalid
from muster.store.base import Column, Record
from muster.store.codec import check_text
from muster.store.record_tables import metric_blocks, metric_series, metric_tail, run_attempts
from muster.track.metrics import append
from muster.track.metrics import table as wide
from muster.track.metrics.append import SYSTEM
from muster.track.metrics.compact import Compaction, tails
from muster.track.metrics.compactor import Compactor
from muster.track.metrics.curve import read_curve, read_points
from muster.track.metrics.milestones import Milestone, read_milestones
from muster.track.metrics.shapes import Axis, Curve, Points, Series, Summary, Table
from muster.track.metrics.source import SeriesQuery, writer
from muster.track.metrics.tail import group
from muster.track.record_db import RecordDb
from muster.wire import NAME_MAX

BUCKETS_MAX: Final = 100_000

_MOST: Final = 2**31 - 1  # largest attempt or rank
_AT_ONCE: Final = 500  # runs in one statement
_series = select(metric_series).order_by(metric_series.c.rank, metric_series.c.name)


class Metrics:
    """Appends points in batches, compacts them in the background, and reads each answer in one transaction.

    Where a rank is None, the writer's series is used: that of the lowest rank that reported the metric.
    """

    def __init__(self, db: RecordDb) -> None:
        self._db = db
        self._compaction = Compaction(db)
        self._compactor = Compactor(db, self._compaction)

    def start(self) -> None:
        """Starts the background compaction."""
        self._compactor.start()

    def close(self) -> None:
        self._compactor.close()

    def append(self, run: str, attempt: int, rank: int, columns: Mapping[str, Column]) -> Record:
        """Writes a batch of points that one rank reported. Raises Invalid for points that can't be stored."""
        check_text(run, *columns)
        if not (0 <= attempt <= _MOST and 0 <= rank <= _MOST):
            raise Invalid(f"Attempt {attempt}, rank {rank} of run {run!r}: both must be from 0 to {_MOST}.")
        for name, column in columns.items():
            _check(name, column)
        groups = group(columns)
        if not groups:
            return _nothing
        self._compactor.grew(run, attempt, rank, sum(one.values.size for one in groups), len(columns))
        return append.record(run, attempt, rank, groups)

    def series(self, run: str, rank: int | None = None) -> list[Series]:
        """All series with their summaries: the run's own first, then system metrics and other ranks."""
        with self._db.reading() as connection:
            rows = connection.execute(_series.where(metric_series.c.run == run)).all()
        found = [Series(row.name, row.rank, _summary(row)) for row in rows if rank in (None, row.rank)]
        writers = {one.name: one.rank for one in reversed(found)}  # rows are sorted by rank, so the lowest remains
        return sorted(
            found, key=lambda one: (one.rank != writers[one.name], one.name.startswith(SYSTEM), one.rank, one.name)
        )

    def summaries(self, runs: Sequence[str]) -> dict[str, dict[str, Summary]]:
        """The writer's series of each run, by name."""
        found: dict[str, dict[str, Summary]] = {run: {} for run in runs}
        with self._db.reading() as connection:
            for at in range(0, len(runs), _AT_ONCE):
                some = metric_series.c.run.in_(runs[at : at + _AT_ONCE])
                for row in connection.execute(_series.where(some)):
                    found[row.run].setdefault(row.name, _summary(row))
        return found

    def curve(
        self,
        run: str,
        name: str,
        *,
        rank: int | None = None,
        attempt: int | None = None,
        buckets: int = 2000,
        start: float | None = None,
        stop: float | None = None,
        axis: Axis = "step",
        superseded: bool = False,
        smooth: float = 0,
    ) -> Curve:
        """At most `buckets` buckets of the points from `start` on and before `stop`, sorted along the axis.

        Superseded points are left out; `superseded` includes them, attempt after attempt, and `attempt` selects one
        attempt as a whole. `smooth` is the weight of what was before a point in a moving average over all points.
        """
        if smooth and superseded:
            raise Invalid("A moving average over superseded points means nothing.", "Leave out one of the two.")
        if not 1 <= buckets <= BUCKETS_MAX:
            raise Invalid(f"{buckets} buckets were asked for.", f"Ask for 1 to {BUCKETS_MAX}.")
        with self._db.reading() as connection:
            of = _rank(connection, run, name, rank)
            want = SeriesQuery(run, name, of, attempt, start, stop, axis, superseded)
            return read_curve(connection, want, buckets, smooth)

    def points(
        self,
        run: str,
        name: str,
        *,
        rank: int | None = None,
        attempt: int | None = None,
        start: float | None = None,
        stop: float | None = None,
        axis: Axis = "step",
        superseded: bool = False,
    ) -> Points:
        """Every point, sorted along the axis; otherwise like `curve`."""
        with self._db.reading() as connection:
            of = _rank(connection, run, name, rank)
            return read_points(connection, SeriesQuery(run, name, of, attempt, start, stop, axis, superseded))

    def milestones(self, run: str, name: str, attempts: Sequence[int]) -> dict[int, list[Milestone]]:
        """The points that tell how far each attempt of the writer's series came; see `read_milestones`."""
        with self._db.reading() as connection:
            return read_milestones(connection, run, name, _rank(connection, run, name, None), attempts)

    def table(self, run: str, names: Sequence[str] | None = None, **which: Any) -> Table:
        """All slices of `tables` in one table."""
        found = list(self.tables(run, names, **which))
        return wide.joined(names or (), found)

    def tables(
        self,
        run: str,
        names: Sequence[str] | None = None,
        *,
        rank: int | None = None,
        attempt: int | None = None,
        start: int | None = None,
        stop: int | None = None,
        superseded: bool = False,
        cells: int = wide.CELLS,
    ) -> Iterator[Table]:
        """Series side by side, in slices of about `cells` values, with a row for each (attempt, step).

        `names` None: all series of the run except system metrics.
        """
        ranks: dict[str, int] = {}
        for one in self.series(run, rank):
            if one.name in names if names is not None else not one.name.startswith(SYSTEM):
                ranks.setdefault(one.name, one.rank)
        ordered = ranks if names is None else {name: ranks.get(name, rank or 0) for name in names}
        asked = wide.TableQuery(run, ordered, attempt, start, stop, superseded)
        return wide.slices(self._db, asked, cells)

    def forget(self, run: str) -> Record:
        """Deletes every point and summary of a run."""

        def write(connection: Connection) -> None:
            for gone in (metric_tail, metric_blocks, metric_series):
                connection.execute(delete(gone).where(gone.c.run == run))
            none = update(run_attempts).where(run_attempts.c.run == run).values(first_step=None, writer=None)
            connection.execute(none)

        return write

    def compact(self, run: str | None = None) -> int:
        """Moves the tail of one run, or of all, into blocks now, and merges blocks. Returns the number of points."""
        if run is not None:
            return self._compaction.compact(run, settle=True)
        with self._db.reading() as connection:
            found = tails(connection)
        return sum(self._compaction.compact(each, settle=True) for each, _, _ in found)

    def ended(self, run: str) -> None:
        """Notes that a run or an attempt has ended: it is compacted soon."""
        self._compactor.ended(run)


def _check(name: str, column: Column) -> None:
    if not 0 < len(name) <= NAME_MAX:
        raise Invalid(
            f"A metric's name of {len(name)} characters was given: {name[:60]!r}.",
            f"Use 1 to {NAME_MAX} characters.",
        )
    if not len(column.steps) == len(column.times) == len(column.values):
        raise Invalid(f"Metric {name!r}: steps, times and values differ in number.", "Give one of each a point.")
    if not np.isfinite(column.times).all():
        raise Invalid(f"Metric {name!r}: a time that is not finite.", "Give times as seconds since 1970.")


def _nothing(_: Connection) -> None:
    """An empty batch."""


def _rank(connection: Connection, run: str, name: str, rank: int | None) -> int:
    if rank is not None:
        return rank
    return writer(connection, run, name) or 0


def _summary(row: Any) -> Summary:
    last = float("nan") if row.last_nan else row.last
    return Summary(
        row.points, row.nans, last, row.last_step, row.last_time, row.last_attempt, row.low, row.low_step, row.high,
        row.high_step,
    )  # fmt: skip
