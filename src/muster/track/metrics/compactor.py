"""The thread that compacts runs as they grow: often enough to keep tails short, rarely enough to be cheap."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Final

from muster.core.errors import MusterError
from muster.track.metrics.compact import Compaction, tails
from muster.track.record_db import RecordDb

log = logging.getLogger("muster.track")

MANY_POINTS: Final = 65_536
MANY_ROWS: Final = 256
FULL: Final = 64  # points per series: a whole piece of a block
SOME: Final = 16  # points per series, for a tail with many rows or no recent points
IDLE: Final = 60.0  # seconds
LONG_IDLE: Final = 900.0
_PAUSE: Final = 1.0  # seconds between checks for idle runs
_RETRY: Final = 15.0  # seconds after a failure


@dataclass(slots=True)
class Backlog:
    """The approximate size of one run's tail: a slightly wrong count does no harm."""

    touched: float
    points: int = 0
    rows: int = 0
    widths: dict[tuple[int, int], int] = field(default_factory=dict)  # (attempt, rank) → number of series
    ended: bool = False
    missed: bool = False  # whether it was tried once already, before its points were committed

    def add(self, other: Backlog) -> None:
        """Adds points that an earlier compaction left over."""
        self.points, self.rows = self.points + other.points, self.rows + other.rows
        self.widths = other.widths | self.widths
        self.ended = self.ended or other.ended

    def due(self, now: float) -> bool:
        series, idle = sum(self.widths.values()), now - self.touched
        if self.ended or self.points >= max(MANY_POINTS, FULL * series):
            return True
        some = self.points >= SOME * series
        return (some and (self.rows >= MANY_ROWS or idle >= IDLE)) or idle >= LONG_IDLE


class Compactor:
    def __init__(self, db: RecordDb, compaction: Compaction, now: Callable[[], float] = time.monotonic) -> None:
        self._db, self._compaction, self._now = db, compaction, now
        self._runs: dict[str, Backlog] = {}
        self._gate = threading.Condition()
        self._stopped = False
        self._thread = threading.Thread(target=self._work, name="compactor", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """Waits for the current compaction. The next server finds the remaining tails."""
        with self._gate:
            self._stopped = True
            self._gate.notify()
        if self._thread.ident is not None:
            self._thread.join()

    def grew(self, run: str, attempt: int, rank: int, points: int, width: int) -> None:
        """Notes that a row with these points of `width` series is about to be written to the tail."""
        now = self._now()
        with self._gate:
            backlog = self._runs.setdefault(run, Backlog(now))
            backlog.touched = now
            backlog.points += points
            backlog.rows += 1
            backlog.widths[(attempt, rank)] = max(width, backlog.widths.get((attempt, rank), 0))
            if backlog.due(now):
                self._gate.notify()

    def ended(self, run: str) -> None:
        """Notes that the run or one of its attempts has ended: its blocks are merged to their final form."""
        with self._gate:
            self._runs.setdefault(run, Backlog(self._now())).ended = True
            self._gate.notify()

    def _work(self) -> None:
        self._recall()
        while True:
            with self._gate:
                if not self._stopped and not self._due():
                    self._gate.wait(_PAUSE)
                if self._stopped:
                    return
                due = {run: self._runs.pop(run) for run in self._due()}
            for run, backlog in due.items():
                if not self._stopped:
                    self._compact(run, backlog)

    def _due(self) -> list[str]:
        now = self._now()
        return [run for run, backlog in self._runs.items() if backlog.due(now)]

    def _recall(self) -> None:
        """Adds the tails that an earlier server left."""
        try:
            with self._db.reading() as connection:
                found = tails(connection)
        except MusterError as error:
            log.warning("The tails of metrics could not be counted; they are compacted as they grow: %s", error)
            return
        with self._gate:
            for run, points, rows in found:
                self._runs.setdefault(run, Backlog(self._now())).add(Backlog(0.0, points, rows))

    def _compact(self, run: str, backlog: Backlog) -> None:
        try:
            moved = self._compaction.compact(run, settle=backlog.ended)
            if moved < backlog.points and not backlog.missed:
                self._return(run, replace(backlog, points=backlog.points - moved, missed=True), _PAUSE)
        except Exception as error:
            if isinstance(error, MusterError):
                log.warning("The metrics of %s could not be compacted; it is tried again: %s", run, error)
            else:
                log.exception("compacting the metrics of %s failed; it is tried again", run)
            self._return(run, backlog, _RETRY)

    def _return(self, run: str, backlog: Backlog, pause: float) -> None:
        """Puts a backlog back after a pause."""
        with self._gate:
            if not self._stopped:
                self._gate.wait(pause)
            if run in self._runs:
                self._runs[run].add(backlog)
            else:
                self._runs[run] = replace(backlog, touched=self._now())
