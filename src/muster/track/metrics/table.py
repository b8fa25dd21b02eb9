"""Several series as one table, for data frames and exports. Read in slices: a long run need not fit in memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from sqlalchemy import Connection, select

from muster.store.record_tables import metric_blocks, metric_tail
from muster.track.metrics import block, source
from muster.track.metrics.block import Ints, Samples
from muster.track.metrics.shapes import Table
from muster.track.metrics.tail import TailReader
from muster.track.record_db import RecordDb

CELLS: Final = 4_000_000  # values in one slice, approximately: 32 MB

Extent = tuple[int, int, int]  # lowest step, highest step, points


@dataclass(frozen=True, slots=True)
class TableQuery:
    """Which series (name → rank) and attempts, from step `start` on and before `stop`."""

    run: str
    ranks: Mapping[str, int]
    attempt: int | None = None
    start: int | None = None
    stop: int | None = None
    superseded: bool = False


def slices(db: RecordDb, asked: TableQuery, cells: int = CELLS) -> Iterator[Table]:
    """Tables sorted by attempt and step. Each is read in its own transaction."""
    if not asked.ranks:
        return
    rows = max(1, cells // len(asked.ranks))
    with db.reading() as connection:
        cut = source.NO_CUTS if asked.superseded or asked.attempt is not None else source.cuts(connection, asked.run)
        spans = _spans(connection, asked)
    for attempt in sorted(spans):
        stop = _least(asked.stop, cut.of(attempt))
        for low, high in step_ranges(spans[attempt], rows):
            begin, end = _most(asked.start, low), _least(stop, high)
            if begin is None or end is None or begin < end:
                with db.reading() as connection:
                    found = _load(connection, asked, attempt, begin, end)
                if table := _aligned(tuple(asked.ranks), attempt, found):
                    yield table


def joined(names: Sequence[str], tables: Sequence[Table]) -> Table:
    """All slices in one table."""
    if not tables:
        none = np.empty((0, len(names)))
        return Table(
            tuple(names), np.empty(0, np.int64), np.empty(0, np.int32), np.empty(0), none, none.astype(np.bool_)
        )
    return Table(
        tables[0].names,
        np.concatenate([one.step for one in tables]),
        np.concatenate([one.attempt for one in tables]),
        np.concatenate([one.time for one in tables]),
        np.concatenate([one.values for one in tables]),
        np.concatenate([one.given for one in tables]),
    )


def step_ranges(extents: Sequence[Extent], rows: int) -> list[tuple[int | None, int | None]]:
    """Ranges that cover all steps, each with about `rows` points of the densest series, where possible."""
    edges: list[int] = []
    held = 0
    for low, high, points in sorted(extents):
        parts = max(1, -(-points // rows))
        held += points
        if held > rows:
            edges += [low + (high - low) * part // parts for part in range(parts)]
            held = points // parts
    inner = sorted(set(edges))
    return list(zip([None, *inner], [*inner, None], strict=True))


def _spans(connection: Connection, asked: TableQuery) -> dict[int, list[Extent]]:
    """The blocks and tails of the series with the most points, by attempt."""
    blocks = metric_blocks.c
    query = select(blocks.name, blocks.rank, blocks.attempt, blocks.step_min, blocks.step_max, blocks.points)
    found: dict[tuple[int, str], list[Extent]] = {}
    for name, rank, attempt, *extent in connection.execute(query.where(blocks.run == asked.run)):
        if asked.ranks.get(name) == rank and asked.attempt in (None, attempt):
            found.setdefault((attempt, name), []).append((extent[0], extent[1], extent[2]))
    for attempt, name, run in _tail(connection, asked, asked.attempt):
        extent_of = (int(run.steps.min()), int(run.steps.max()), len(run))
        found.setdefault((attempt, name), []).append(extent_of)
    densest: dict[int, list[Extent]] = {}
    for (attempt, _), extents in found.items():
        if _points(extents) > _points(densest.get(attempt, [])):
            densest[attempt] = extents
    return densest


def _load(
    connection: Connection, asked: TableQuery, attempt: int, start: int | None, stop: int | None
) -> dict[str, list[Samples]]:
    blocks = metric_blocks.c
    query = select(blocks.name, blocks.rank, blocks.step_min, blocks.step_max, blocks.id, blocks.data)
    query = query.where(blocks.run == asked.run, blocks.attempt == attempt)
    if start is not None:
        query = query.where(blocks.step_max >= start)
    if stop is not None:
        query = query.where(blocks.step_min < stop)
    found: dict[str, list[Samples]] = {}
    for name, rank, _, _, _, data in connection.execute(query.order_by(blocks.name, blocks.rank, blocks.id)):
        if asked.ranks.get(name) == rank:
            found.setdefault(name, []).append(_between(block.decode(data), start, stop))
    for _, name, run in _tail(connection, asked, attempt):
        found.setdefault(name, []).append(_between(run, start, stop))
    return found


def _tail(connection: Connection, asked: TableQuery, attempt: int | None) -> Iterator[tuple[int, str, Samples]]:
    tail, reader = metric_tail.c, TailReader()
    query = select(tail.attempt, tail.rank, tail.data).where(tail.run == asked.run)
    if attempt is not None:
        query = query.where(tail.attempt == attempt)
    for of_attempt, rank, data in connection.execute(query.order_by(tail.id)):
        for group in reader.groups(data):
            for name, values in zip(group.names, group.values, strict=True):
                if asked.ranks.get(name) == rank:
                    yield of_attempt, name, Samples(group.steps, group.times, values)


def _between(run: Samples, start: int | None, stop: int | None) -> Samples:
    keep = np.ones(len(run), np.bool_)
    if start is not None:
        keep &= run.steps >= start
    if stop is not None:
        keep &= run.steps < stop
    return run if keep.all() else run.take(keep)


def _aligned(names: tuple[str, ...], attempt: int, found: Mapping[str, list[Samples]]) -> Table | None:
    """One row per step, and another for each repetition of a step in a series."""
    runs = {name: _by_step(block.join(parts)) for name, parts in found.items()}
    steps = np.concatenate([run.steps for run in runs.values()] or [np.empty(0, np.int64)])
    if not len(steps):
        return None
    turns = np.concatenate([_turns(run.steps) for run in runs.values()])
    order = np.lexsort((turns, steps))
    new = np.append(True, (np.diff(steps[order]) != 0) | (np.diff(turns[order]) != 0))
    rows = np.empty(len(steps), np.int64)
    rows[order] = np.cumsum(new) - 1
    table = _empty(names, steps[order][new], attempt)
    columns = {name: place for place, name in enumerate(names)}
    at = 0
    for name, run in runs.items():
        mine, column = rows[at : at + len(run)], columns[name]
        table.values[mine, column] = run.values
        table.given[mine, column] = True
        table.time[mine] = np.minimum(table.time[mine], run.times)
        at += len(run)
    return table


def _empty(names: tuple[str, ...], steps: Ints, attempt: int) -> Table:
    size = (len(steps), len(names))
    times, attempts = np.full(len(steps), np.inf), np.full(len(steps), attempt, np.int32)
    return Table(names, steps, attempts, times, np.full(size, np.nan), np.zeros(size, np.bool_))


def _by_step(run: Samples) -> Samples:
    if bool((run.steps[1:] >= run.steps[:-1]).all()):
        return run
    return run.take(np.argsort(run.steps, kind="stable"))


def _turns(steps: Ints) -> Ints:
    """For sorted steps, the number of earlier occurrences of each."""
    places = np.arange(len(steps))
    first = np.append(True, steps[1:] != steps[:-1])[: len(steps)]
    return places - np.maximum.accumulate(np.where(first, places, 0))


def _points(extents: Sequence[Extent]) -> int:
    return sum(points for _, _, points in extents)


def _least(a: int | None, b: int | None) -> int | None:
    return b if a is None else a if b is None else min(a, b)


def _most(a: int | None, b: int | None) -> int | None:
    return b if a is None else a if b is None else max(a, b)
