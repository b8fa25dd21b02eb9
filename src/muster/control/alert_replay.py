"""Replays the server's own history through alert rules: its event log, and the metrics of its runs."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from heapq import merge
from typing import Final

from sqlalchemy import select

from muster.core.event import Event
from muster.monitor.alerts.figures import HIGHER_IS_BETTER, LOWER_IS_BETTER
from muster.monitor.alerts.replay import Point, Replayed, replay
from muster.monitor.alerts.rule import RuleSet
from muster.monitor.damage import LOSSES
from muster.store.base import EventFilter, Store
from muster.store.record_tables import runs
from muster.track.metrics.store import Metrics
from muster.track.record_db import RecordDb
from muster.track.tracking import Tracking

PAGE: Final = 2_000  # events that are read at a time
RUNS_MAX: Final = 300  # runs whose metrics are replayed, the newest
SERIES_MAX: Final = 16  # of a run
PIECES: Final = 2_000  # points of a series, at most; longer ones are thinned
SECONDS: Final = 60.0  # of work, after which what was found so far is returned
_DEVICE: Final = "system/gpu"
_NAMES: Final = LOSSES | LOWER_IS_BETTER | HIGHER_IS_BETTER


def replay_history(
    store: Store, track: Tracking | None, rules: RuleSet, since: float, until: float
) -> tuple[Replayed, int]:
    """What rules would have raised, and the number of runs whose metrics were replayed."""
    if track is None:
        return replay(rules, _log(store), [], since, until, _patience()), 0
    found = _runs(track.db, since, until)
    points = merge(*(_points(track.metrics, run, since, until) for run in found), key=lambda one: one.time)
    return replay(rules, _log(store), points, since, until, _patience()), len(found)


def _patience() -> Callable[[], bool]:
    end = time.monotonic() + SECONDS
    return lambda: time.monotonic() > end


def _runs(db: RecordDb, since: float, until: float) -> list[str]:
    """The newest runs of jobs that were there between two times."""
    there = (runs.c.ended_at.is_(None) | (runs.c.ended_at >= since)) & (runs.c.created_at <= until)
    newest = select(runs.c.id).where(there).order_by(runs.c.created_at.desc()).limit(RUNS_MAX)
    with db.reading() as connection:
        return list(connection.execute(newest).scalars())


def _log(store: Store) -> Iterator[Event]:
    after = 0
    while page := store.events(EventFilter(after=after, limit=PAGE)):
        yield from page
        after = page[-1].seq


def _points(metrics: Metrics, run: str, since: float, until: float) -> Iterator[Point]:
    series = [one for one in metrics.series(run) if one.name in _NAMES or one.name.startswith(_DEVICE)]
    each = (_series(metrics, run, one.name, one.rank, since, until) for one in series[:SERIES_MAX])
    yield from merge(*each, key=lambda one: one.time)


def _series(metrics: Metrics, run: str, name: str, rank: int, since: float, until: float) -> Iterator[Point]:
    """A series by time. Where it is thinned, the mean counts for devices, and the last value of a piece for others."""
    curve = metrics.curve(run, name, rank=rank, buckets=PIECES, start=since, stop=until, axis="time")
    found = curve.buckets
    values = found.mean if name.startswith(_DEVICE) else found.last
    for number in range(len(found)):
        at, attempt = float(found.last_time[number]), int(curve.attempt[number])
        yield Point(at, run, attempt, rank, name, int(found.last_step[number]), float(values[number]))
