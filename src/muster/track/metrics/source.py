"""Reads the stored blocks and tail of one series in one transaction, as points or pieces.

If a restart goes back to step s, it supersedes what earlier attempts reported from s on. This is decided at reading:
superseded points stay stored.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Final, Literal, cast

import numpy as np
from sqlalchemy import Connection, bindparam, func, select

from muster.store.codec import dumps
from muster.store.record_tables import metric_blocks, metric_series, metric_tail, run_attempts
from muster.track.metrics import block
from muster.track.metrics.append import SYSTEM
from muster.track.metrics.block import Samples
from muster.track.metrics.shapes import Axis
from muster.track.metrics.tail import TailReader

_of_series = (
    (metric_blocks.c.run == bindparam("of_run"))
    & (metric_blocks.c.name == bindparam("of_name"))
    & (metric_blocks.c.rank == bindparam("of_rank"))
)
_columns = ("id", "attempt", "step_min", "step_max", "time_min", "time_max", "points")
_extents = (
    select(*(metric_blocks.c[name] for name in _columns))
    .where(_of_series)
    .order_by(metric_blocks.c.attempt, metric_blocks.c.id)
)
_tail = (
    select(metric_tail.c.attempt, metric_tail.c.data)
    .where(metric_tail.c.run == bindparam("of_run"), metric_tail.c.rank == bindparam("of_rank"))
    .order_by(metric_tail.c.id)
)
_writer = select(func.min(metric_series.c.rank)).where(
    metric_series.c.run == bindparam("of_run"), metric_series.c.name == bindparam("of_name")
)
_first_steps = (
    select(run_attempts.c.attempt, run_attempts.c.first_step)
    .where(run_attempts.c.run == bindparam("of_run"), run_attempts.c.first_step.is_not(None))
    .order_by(run_attempts.c.attempt)
)


@dataclass(frozen=True, slots=True)
class SeriesQuery:
    """Which points to read: those from `start` on and before `stop` on the axis.

    With `attempt` None, those of all attempts that are not superseded, or, with `superseded`, all.
    """

    run: str
    name: str
    rank: int
    attempt: int | None = None
    start: float | None = None
    stop: float | None = None
    axis: Axis = "step"
    superseded: bool = False  # then attempts come one after the other, instead of replacing each other


@dataclass(frozen=True, slots=True)
class Part:
    """A block that is not loaded yet, or points of the tail. `cut`: its points from this step on are superseded."""

    attempt: int
    points: int
    steps: tuple[int, int]  # lowest and highest
    times: tuple[float, float]
    cut: int | None
    id: int = 0  # of a block
    run: Samples | None = None  # of the tail


def writer(connection: Connection, run: str, name: str) -> int | None:
    """The lowest rank that reported this metric."""
    return connection.execute(_writer, {"of_run": run, "of_name": name}).scalar()


@dataclass(frozen=True, slots=True)
class Superseded:
    """Where attempts are superseded. `lowest[i]` is the lowest first step of attempt `attempts[i]` and later ones."""

    attempts: list[int]
    lowest: list[int]

    def of(self, attempt: int) -> int | None:
        """The step from which on later attempts supersede this one; None if they don't."""
        place = bisect_right(self.attempts, attempt)
        return self.lowest[place] if place < len(self.attempts) else None


NO_CUTS: Final = Superseded([], [])


def cuts(connection: Connection, run: str, name: str = "") -> Superseded:
    """Cuts of one series, or of any that isn't a system metric."""
    if name.startswith(SYSTEM):
        return NO_CUTS
    rows = connection.execute(_first_steps, {"of_run": run}).all()
    lowest = list(accumulate((first for _, first in reversed(rows)), min))
    return Superseded([attempt for attempt, _ in rows], lowest[::-1])


def parts(connection: Connection, want: SeriesQuery, cut: Superseded) -> list[Part]:
    """All parts that may have wanted points, sorted by attempt, then by arrival."""
    cut = NO_CUTS if want.superseded or want.attempt is not None else cut
    lookup = {"of_run": want.run, "of_name": want.name, "of_rank": want.rank}
    found = [
        Part(attempt, points, (step_min, step_max), (time_min, time_max), cut.of(attempt), id_)
        for id_, attempt, step_min, step_max, time_min, time_max, points in connection.execute(_extents, lookup)
    ]
    reader = TailReader()
    for attempt, data in connection.execute(_tail, {"of_run": want.run, "of_rank": want.rank}):
        column = reader.column(data, want.name)
        if column is not None:
            found.append(_of_tail(attempt, Samples(*column), cut.of(attempt)))
    wanted = [part for part in found if want.attempt in (None, part.attempt) and _touches(part, want)]
    return sorted(wanted, key=lambda part: part.attempt)  # stable: the tail of an attempt stays behind its blocks


def is_whole(part: Part, want: SeriesQuery) -> bool:
    """Whether all points of a part are wanted."""
    low, high = part.steps if want.axis == "step" else part.times
    return (
        (part.cut is None or part.steps[1] < part.cut)
        and (want.start is None or low >= want.start)
        and (want.stop is None or high < want.stop)
    )


def runs(connection: Connection, wanted: Sequence[Part], want: SeriesQuery) -> Iterator[tuple[Part, Samples]]:
    """The wanted points of each part."""
    loaded = blobs(connection, [part.id for part in wanted if part.run is None], "data")
    for part in wanted:
        run = part.run if part.run is not None else block.decode(loaded.pop(part.id))
        yield part, run if is_whole(part, want) else _kept(run, part, want)


def _of_tail(attempt: int, run: Samples, cut: int | None) -> Part:
    steps = (int(run.steps.min()), int(run.steps.max()))
    return Part(attempt, len(run), steps, (float(run.times.min()), float(run.times.max())), cut, run=run)


def _touches(part: Part, want: SeriesQuery) -> bool:
    low, high = part.steps if want.axis == "step" else part.times
    return (
        (part.cut is None or part.steps[0] < part.cut)
        and (want.start is None or high >= want.start)
        and (want.stop is None or low < want.stop)
    )


def _kept(run: Samples, part: Part, want: SeriesQuery) -> Samples:
    along = run.steps if want.axis == "step" else run.times
    keep = np.ones(len(run), np.bool_)
    if part.cut is not None:
        keep &= run.steps < part.cut
    if want.start is not None:
        keep &= along >= want.start
    if want.stop is not None:
        keep &= along < want.stop
    return run.take(keep)


def blobs(connection: Connection, ids: Sequence[int], column: Literal["data", "buckets"]) -> dict[int, bytes]:
    """One column of these blocks, by id. Bypasses SQLAlchemy: there are up to thousands, and this dominates reading."""
    if not ids:
        return {}
    if connection.dialect.name == "postgresql":
        # Binary: by default the server sends every byte as two hex digits.
        cursor = cast(Any, connection.connection).cursor(binary=True)
        try:
            found = cursor.execute(f"SELECT id, {column} FROM metric_blocks WHERE id = ANY(%s)", (list(ids),))  # noqa: S608
            return dict(found.fetchall())
        finally:
            cursor.close()
    sql = f"SELECT id, {column} FROM metric_blocks WHERE id IN (SELECT value FROM json_each(?))"  # noqa: S608
    return {row[0]: row[1] for row in connection.exec_driver_sql(sql, (dumps(ids),))}
