"""Queries of a SQL store about the past: roll-ups by key, and service levels from one covering index."""

from __future__ import annotations

from array import array
from typing import Final

from sqlalchemy import ColumnElement, Connection, and_, case, func, select

from muster.core.rules import HIGH
from muster.store import tables
from muster.store.connect import Database
from muster.store.past import UNSTARTED, Level, LevelFilter, LevelKey, Rollup, level

_PAGE: Final = 5_000  # waits read at a time

_jobs = tables.jobs.c
_high = case((_jobs.priority >= HIGH, 1), else_=0)


class PastReads:
    """The methods of a SQL store that read the past."""

    _db: Database

    def rollups(self, resolution: int, pool: str | None, since: int, until: int) -> list[Rollup]:
        rows = tables.rollups.c
        query = select(tables.rollups).where(rows.resolution == resolution, rows.start >= since, rows.start < until)
        if pool is not None:
            query = query.where(rows.pool == pool)
        with self._db.reading() as connection:
            return [Rollup(*row) for row in connection.execute(query.order_by(rows.start, rows.pool))]

    def rolled_up_until(self, resolution: int) -> int:
        rows = tables.rollups.c
        with self._db.reading() as connection:
            query = select(func.max(rows.until)).where(rows.resolution == resolution)
            return connection.execute(query).scalar() or 0

    def levels(self, want: LevelFilter) -> list[Level]:
        with self._db.reading() as connection:
            waits, waiting = _waits(connection, want), _waiting(connection, want)
        none: array[float] = array("d")
        return [
            level(key, target, waits.get(key, none), *waiting.get(key, (0, 0)))
            for key, target in want.targets.items()
            if key in waits or key in waiting
        ]


def _waits(connection: Connection, want: LevelFilter) -> dict[LevelKey, array[float]]:
    """All waits: sorting them here takes a fifth of the time of a window function over as many rows in SQLite."""
    query = select(_jobs.work, _high, _jobs.started_at - _jobs.submitted_at)
    query = query.where(_jobs.started_at >= want.since, *_terms(want))
    found: dict[LevelKey, array[float]] = {}
    for rows in connection.execution_options(stream_results=True).execute(query).partitions(_PAGE):
        for work, high, wait in rows:
            key = (work, bool(high))
            if key not in found:
                found[key] = array("d")
            found[key].append(wait)
    return found


def _waiting(connection: Connection, want: LevelFilter) -> dict[LevelKey, tuple[int, int]]:
    """How many jobs have not started yet, and how many of them are late."""
    is_late = case((want.now - _jobs.submitted_at > _target(want), 1), else_=0).label("late")
    waiting = (_jobs.phase.in_(UNSTARTED), _jobs.started_at.is_(None), *_terms(want))
    each = select(_jobs.work, _high.label("high"), is_late).where(*waiting).subquery().c
    query = select(each.work, each.high, func.count(), func.sum(each.late))
    rows = connection.execute(query.group_by(each.work, each.high))
    return {(work, bool(high)): (count, late) for work, high, count, late in rows}


def _target(want: LevelFilter) -> ColumnElement[float]:
    return case(*(
        (and_(_jobs.work == work, _jobs.priority >= HIGH if high else _jobs.priority < HIGH), target)
        for (work, high), target in want.targets.items()
    ))  # fmt: skip


def _terms(want: LevelFilter) -> list[ColumnElement[bool]]:
    terms: list[ColumnElement[bool]] = []
    if want.projects is not None:
        # Avoids the index of projects: it would lead to every job of the projects, and to its long row.
        terms.append(func.coalesce(_jobs.project, "").in_(want.projects))
    if want.queue is not None:
        terms.append(_jobs.queue == want.queue)
    return terms
