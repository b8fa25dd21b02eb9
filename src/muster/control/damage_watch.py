"""Watches the losses and gradient norms of all runs as they arrive, and logs signs of silent damage.

It follows the metric tap, so ingest never waits for it. What it knows of a run is in memory: after a restart of the
server, a path is learnt anew.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from muster.control.background import Background
from muster.control.clock import Clock
from muster.control.metric_tap import MetricTap, Points
from muster.core.event import SYSTEM, Event
from muster.core.record_events import RunDamaged
from muster.monitor.damage import JUDGED, Damage, Path
from muster.store.base import Entry, Store
from muster.store.commit import Commit

EVERY: Final = 1.0  # seconds between two looks
PATHS_MAX: Final = 20_000  # metrics that are followed; the one that was reported longest ago is dropped for another
_FIRST_RANK: Final = 0


class DamageWatch:
    """A thread beside the control loop."""

    def __init__(self, tap: MetricTap, store: Store, commit: Commit, clock: Clock) -> None:
        self._tap, self._store, self._commit, self._clock = tap, store, commit, clock
        self._subscription = tap.subscribe("damage", names=JUDGED)
        self._paths: OrderedDict[tuple[str, int, str], Path] = OrderedDict()
        self._thread = Background("damage", self.look, lambda: True, lambda took: EVERY)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._tap.unsubscribe(self._subscription)
        self._thread.close()

    def look(self) -> None:
        """Judges what arrived since the last look. Points that did not fit are passed over: the next ones count."""
        for points in self._subscription.take().points:
            if points.rank == _FIRST_RANK:
                found = self._path(points).take(zip(points.column.steps, points.column.values, strict=True))
                if found:
                    self._record(points, found)

    def _path(self, points: Points) -> Path:
        key = (points.run, points.attempt, points.name)
        path = self._paths.setdefault(key, Path(points.name))
        self._paths.move_to_end(key)
        if len(self._paths) > PATHS_MAX:
            self._paths.popitem(last=False)
        return path

    def _record(self, points: Points, found: list[Damage]) -> None:
        """Only runs of jobs have a logbook that the platform writes. The job may have ended meanwhile, of just this."""
        job, now = self._store.job(points.run), self._clock.now()
        if job is not None:
            about = (now, SYSTEM, job.project, job.id, points.attempt)
            events = [Event(RunDamaged(one.kind, one.metric, one.step, one.sentence()), *about) for one in found]
            self._commit.submit(lambda state: Entry(events)).result()
