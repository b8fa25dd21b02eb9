"""Writes a batch of points: one row of the tail, and an update of the summary of each series.

Nothing is read first: each summary is an upsert that the database resolves. So a batch is prepared before its
transaction, and many batches can share a transaction.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from sqlalchemy import Connection

from muster.store.base import Record
from muster.track.metrics.tail import Floats, Group, Ints, encode

SYSTEM: Final = "system/"  # system metrics: their steps are seconds since the launch, and never go back

_NAMES: Final = (
    "name", "points", "nans", "last", "last_nan", "last_step", "last_time", "low", "low_step", "high", "high_step",
)  # fmt: skip
_TYPES: Final = (
    "text", "bigint", "bigint", "float8", "bool", "bigint", "float8", "float8", "bigint", "float8", "bigint",
)  # fmt: skip
# Of two values at the same step and time the greater one is the last, in whatever order they come; a NaN counts as 0.
# MLflow has the same rule.
_NEWER: Final = (
    "(excluded.last_attempt, excluded.last_step, excluded.last_time, coalesce(excluded.last, 0)) >= "
    "(metric_series.last_attempt, metric_series.last_step, metric_series.last_time, coalesce(metric_series.last, 0))"
)


def record(run: str, attempt: int, rank: int, groups: list[Group]) -> Record:
    """Writes the groups. `run` and the names must be texts that the database can store."""
    data = encode(groups)
    points = sum(one.values.size for one in groups)
    rows = [row for one in groups for row in _summaries(one)]
    lowest = [int(one.steps.min()) for one in groups if not all(name.startswith(SYSTEM) for name in one.names)]

    def write(connection: Connection) -> None:
        postgres = connection.dialect.name == "postgresql"
        connection.exec_driver_sql(_TAIL[postgres], (run, attempt, rank, points, data))
        if postgres:  # one statement with arrays: ten thousand series cost one round trip
            connection.exec_driver_sql(_SERIES_ARRAYS, (run, rank, attempt, *map(list, zip(*rows, strict=True))))
        else:
            connection.exec_driver_sql(_SERIES_ROWS, [(run, rank, attempt, *row) for row in rows])
        if lowest:
            connection.exec_driver_sql(_FIRST_STEP[postgres], (run, attempt, min(lowest), rank, "{}"))

    return write


def _summaries(one: Group) -> Sequence[tuple[Any, ...]]:
    """One row per name, with the columns `_NAMES`."""
    values, at = one.values, _last(one)
    nans = np.isnan(values).sum(axis=1)
    low, high = np.fmin.reduce(values, axis=1), np.fmax.reduce(values, axis=1)
    low_step = one.steps[(values == low[:, None]).argmax(axis=1)]
    high_step = one.steps[(values == high[:, None]).argmax(axis=1)]
    step, time, count = int(one.steps[at[0]]), float(one.times[at[0]]), len(one.steps)
    found = zip(
        one.names, nans.tolist(), _greatest(values[:, at]).tolist(), low.tolist(), low_step.tolist(), high.tolist(),
        high_step.tolist(), strict=True,
    )  # fmt: skip
    return [
        (name, count, nan, None, True, step, time, *_extremes(nan == count, low, low_step, high, high_step))
        if value != value
        else (name, count, nan, value, False, step, time, low, low_step, high, high_step)
        for name, nan, value, low, low_step, high, high_step in found
    ]


def _last(one: Group) -> Ints:
    """Indexes of the points with the highest step, and among these the highest time; mostly one."""
    at = np.flatnonzero(one.steps == one.steps.max())
    times = one.times[at]
    last: Ints = at[times == times.max()]
    return last


def _greatest(values: Floats) -> Floats:
    """The greatest value of each row. A NaN counts as 0; of equal values the newest."""
    if values.shape[1] == 1:
        return values[:, 0]
    numbers = np.where(np.isnan(values), 0.0, values)[:, ::-1]
    return np.take_along_axis(values[:, ::-1], numbers.argmax(axis=1)[:, None], axis=1)[:, 0]


def _extremes(none: bool, *extremes: float) -> tuple[float | None, ...]:
    return tuple(None if none else each for each in extremes)


def _kept(column: str, when: str) -> str:
    return f"{column} = CASE WHEN {when} THEN excluded.{column} ELSE metric_series.{column} END"


def _series_sql(source: str) -> str:
    lower = "excluded.low IS NOT NULL AND (metric_series.low IS NULL OR excluded.low < metric_series.low)"
    higher = "excluded.high IS NOT NULL AND (metric_series.high IS NULL OR excluded.high > metric_series.high)"
    changes = [f"{name} = metric_series.{name} + excluded.{name}" for name in ("points", "nans")]
    changes += [_kept(name, _NEWER) for name in ("last", "last_nan", "last_step", "last_time", "last_attempt")]
    changes += [_kept(name, lower) for name in ("low", "low_step")]
    changes += [_kept(name, higher) for name in ("high", "high_step")]
    columns = ", ".join(("run", "rank", "last_attempt", *_NAMES))
    return (
        f"INSERT INTO metric_series ({columns}) {source}"
        f" ON CONFLICT (run, name, rank) DO UPDATE SET {', '.join(changes)}"
    )


def _first_step_sql(mark: str, least: str) -> str:
    """The lowest rank that reports is the writer, in whatever order ranks report."""
    values = ", ".join([mark] * 5)
    return (
        f"INSERT INTO run_attempts (run, attempt, first_step, writer, doc) VALUES ({values})"  # noqa: S608
        " ON CONFLICT (run, attempt) DO UPDATE SET first_step = CASE"
        " WHEN run_attempts.writer IS NULL OR excluded.writer < run_attempts.writer THEN excluded.first_step"
        f" WHEN excluded.writer = run_attempts.writer THEN {least}(excluded.first_step, run_attempts.first_step)"
        " ELSE run_attempts.first_step END,"
        " writer = CASE WHEN run_attempts.writer < excluded.writer THEN run_attempts.writer ELSE excluded.writer END"
    )


def _tail_sql(mark: str) -> str:
    values = ", ".join([mark] * 5)
    return f"INSERT INTO metric_tail (run, attempt, rank, points, data) VALUES ({values})"  # noqa: S608


_SERIES_ROWS: Final = _series_sql(f"VALUES ({', '.join(['?'] * (3 + len(_NAMES)))})")
_ARRAYS: Final = ", ".join(f"%s::{kind}[]" for kind in _TYPES)
_SERIES_ARRAYS: Final = _series_sql(f"SELECT %s::text, %s::int, %s::int, each.* FROM unnest({_ARRAYS}) AS each")  # noqa: S608
# For SQLite and PostgreSQL; the index is whether it is PostgreSQL.
_TAIL: Final = (_tail_sql("?"), _tail_sql("%s"))
_FIRST_STEP: Final = (_first_step_sql("?", "min"), _first_step_sql("%s", "least"))
