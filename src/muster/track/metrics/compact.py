"""Compaction: moves points from the tail into blocks, by series.

Each move is one transaction, so that every point is always in exactly one of the two. New points are merged with the
last blocks of their series that are not full and not much larger than what is merged so far. So a point is rewritten
only a few times until it is in a full block, even if few points of its series arrive at a time.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from sqlalchemy import Connection, delete, func, insert, select, text

from muster.store.base import Record
from muster.store.record_tables import metric_blocks, metric_tail
from muster.track.metrics import block, downsampled, source
from muster.track.metrics.block import Samples
from muster.track.metrics.tail import TailReader
from muster.track.record_db import RecordDb

BLOCK: Final = 16_384  # points; the schema's index of unfull blocks uses the same number

_SLICE: Final = 1_000_000  # points that one transaction moves, approximately
_MUCH_LARGER: Final = 2  # times
_AT_ONCE: Final = 500  # ids in one statement

Key = tuple[int, int, str]  # rank, attempt, name


@dataclass(slots=True)
class _Open:
    """The unfull blocks of a series, oldest first: id and points."""

    blocks: list[tuple[int, int]] = field(default_factory=list)


@dataclass(slots=True)
class _Plan:
    """One transaction: rows to delete and rows to insert."""

    run: str
    upto: int = 0  # id of the newest tail row to delete; all older ones are deleted too
    rows: int = 0
    points: int = 0
    replaced: list[int] = field(default_factory=list)  # ids of blocks
    made: list[dict[str, Any]] = field(default_factory=list)
    done: bool = False

    def record(self) -> Record:
        return self._write

    def _write(self, connection: Connection) -> None:
        if not self._still_there(connection):  # the run was purged meanwhile, and must not come back
            return
        if self.rows:
            connection.execute(_gone(self.run, self.upto))
        for ids in _batches(self.replaced):
            connection.execute(delete(metric_blocks).where(metric_blocks.c.id.in_(ids)))
        if self.made:
            connection.execute(insert(metric_blocks), self.made)
        self.done = True

    def _still_there(self, connection: Connection) -> bool:
        tail = select(func.count()).where(metric_tail.c.run == self.run, metric_tail.c.id <= self.upto)
        there = sum(
            connection.execute(select(func.count()).where(metric_blocks.c.id.in_(ids))).scalar_one()
            for ids in _batches(self.replaced)
        )
        return there == len(self.replaced) and connection.execute(tail).scalar_one() == self.rows


class Compaction:
    """Compacts runs, one at a time."""

    def __init__(self, db: RecordDb) -> None:
        self._db = db
        self._lock = threading.Lock()

    def compact(self, run: str, settle: bool = False) -> int:
        """Moves the whole tail of a run. Returns the number of points. `settle` leaves one unfull block per series."""
        moved = 0
        with self._lock:
            while (plan := self._plan(run, settle)) is not None:
                self._db.write(plan.record())
                if not plan.done:
                    break
                moved += plan.points
        return moved

    def _plan(self, run: str, settle: bool) -> _Plan | None:
        plan = _Plan(run)
        with self._db.reading() as connection:
            found = _take(connection, plan)
            opened = _open_blocks(connection, run)
            if settle and not plan.rows:
                found = {key: [] for key, one in opened.items() if len(one.blocks) > 1}
            if not found:
                return None
            merged = {
                key: _blocks_to_merge(opened.get(key), sum(map(len, runs)), settle) for key, runs in found.items()
            }
            plan.replaced = [id_ for ids in merged.values() for id_ in ids]
            old = source.blobs(connection, plan.replaced, "data")
        for key, runs in found.items():
            whole = block.join([block.decode(old[id_]) for id_ in merged[key]] + runs)
            plan.made += [_row(run, key, whole.take(slice(at, at + BLOCK))) for at in range(0, len(whole), BLOCK)]
        return plan


def tails(connection: Connection) -> list[tuple[str, int, int]]:
    """Runs that have a tail, with its points and rows."""
    tail = metric_tail.c
    query = select(tail.run, func.sum(tail.points), func.count()).group_by(tail.run)
    return [(run, int(points), int(rows)) for run, points, rows in connection.execute(query)]


def _take(connection: Connection, plan: _Plan) -> dict[Key, list[Samples]]:
    """The oldest rows of the tail, about `_SLICE` points, by series."""
    tail = metric_tail.c
    sizes = select(tail.id, tail.points).where(tail.run == plan.run).order_by(tail.id)
    for id_, points in connection.execute(sizes):
        if plan.rows and plan.points + points > _SLICE:
            break
        plan.upto, plan.rows, plan.points = id_, plan.rows + 1, plan.points + points
    rows = select(tail.rank, tail.attempt, tail.data).where(tail.run == plan.run, tail.id <= plan.upto)
    reader, found = TailReader(), dict[Key, list[Samples]]()
    for rank, attempt, data in connection.execute(rows.order_by(tail.id)):
        for group in reader.groups(data):
            for name, values in zip(group.names, group.values, strict=True):
                found.setdefault((rank, attempt, name), []).append(Samples(group.steps, group.times, values))
    return found


def _open_blocks(connection: Connection, run: str) -> dict[Key, _Open]:
    blocks = metric_blocks.c
    query = select(blocks.id, blocks.rank, blocks.attempt, blocks.name, blocks.points).where(
        blocks.run == run, text(f"points < {BLOCK}")
    )
    found: dict[Key, _Open] = {}
    for id_, rank, attempt, name, points in connection.execute(query.with_hint(metric_blocks, _UNFULL, "sqlite")):
        found.setdefault((rank, attempt, name), _Open()).blocks.append((id_, points))
    for one in found.values():
        one.blocks.sort()
    return found


def _blocks_to_merge(opened: _Open | None, points: int, settle: bool) -> list[int]:
    """Ids of the blocks to merge the new points with, oldest first: always the newest blocks of the series."""
    ids: list[int] = []
    for id_, size in reversed(opened.blocks if opened is not None else []):
        if not settle and size > _MUCH_LARGER * points:
            break
        ids.append(id_)
        points += size
    return ids[::-1]


def _row(run: str, key: Key, points: Samples) -> dict[str, Any]:
    rank, attempt, name = key
    return {
        "run": run,
        "name": name,
        "attempt": attempt,
        "rank": rank,
        "step_min": int(points.steps.min()),
        "step_max": int(points.steps.max()),
        "time_min": float(points.times.min()),
        "time_max": float(points.times.max()),
        "points": len(points),
        "buckets": downsampled.encode(points),
        "data": block.encode(points),
    }


def _gone(run: str, upto: int) -> Any:
    return delete(metric_tail).where(metric_tail.c.run == run, metric_tail.c.id <= upto)


def _batches(ids: Sequence[int]) -> list[Sequence[int]]:
    return [ids[at : at + _AT_ONCE] for at in range(0, len(ids), _AT_ONCE)]


_UNFULL: Final = "INDEXED BY metric_blocks_unfull"
