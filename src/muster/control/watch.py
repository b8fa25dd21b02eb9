"""Keeps what the engine last reported of each worker, since when, and when that has lasted too long."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Literal

from muster.core.state import State
from muster.engines.base import WorkerReport, WorkerStatus

# Seconds for which the engine's report must stay the same before it is used, or its own patience if that is shorter.
GONE_AFTER: Final = 5.0
LOST_AFTER: Final = 20.0
RELAUNCH_AFTER: Final = 5.0  # seconds without a sign of a launcher

Key = tuple[str, int]  # job, attempt
Status = WorkerStatus | Literal["unknown"]


@dataclass(slots=True)
class LastReport:
    """The last report about a worker: `unknown` when a full poll did not list it."""

    report: WorkerReport | None
    status: Status
    since: float  # when this status was first seen


class Watch:
    """Updated by `replace` with a full poll, or by `update` with new reports."""

    def __init__(self, patience: float) -> None:
        self._seen: dict[Key, dict[int, LastReport]] = {}
        self._timers: list[tuple[float, str, int]] = []  # when to look again, job, attempt
        lost, gone = min(patience, LOST_AFTER), min(patience, GONE_AFTER)
        self._waits: dict[Status, tuple[float, ...]] = {
            "pending": (),
            "running": (),
            "ended": (patience,),
            "lost": (lost,),
            "starting": (gone, RELAUNCH_AFTER),
            "unknown": (gone, RELAUNCH_AFTER),
        }

    def of(self, job: str, attempt: int) -> Mapping[int, LastReport]:
        """By worker; a worker that was never reported is missing."""
        return self._seen.get((job, attempt), _NOTHING)

    def frozen(self, job: str, attempt: int) -> set[int]:
        """Workers whose launcher's process is stopped, as far as the engine can see it."""
        return {worker for worker, last in self.of(job, attempt).items() if last.report and last.report.frozen}

    def replace(self, reports: Sequence[WorkerReport], state: State, now: float) -> None:
        """Stores a full poll: an active worker that it doesn't list becomes unknown."""
        before, self._seen, self._timers = self._seen, {}, []
        for report in reports:
            self._see((report.job, report.attempt), report.worker, report, now, before)
        for job_id in state.active:
            attempt = state.jobs[job_id].attempt
            assert attempt is not None
            key = (job_id, attempt.number)
            for worker in range(len(attempt.workers)):
                if worker not in self._seen.get(key, _NOTHING):
                    self._see(key, worker, None, now, before)

    def update(self, reports: Iterable[WorkerReport], now: float) -> None:
        for report in reports:
            self._see((report.job, report.attempt), report.worker, report, now, self._seen)

    def is_due(self, now: float) -> bool:
        return bool(self._timers) and self._timers[0][0] <= now

    def due(self, now: float) -> set[Key]:
        """Attempts with a status that has lasted long enough to act on; each is returned once."""
        found: set[Key] = set()
        while self.is_due(now):
            found.add(heapq.heappop(self._timers)[1:])
        return found

    def next_due(self) -> float | None:
        return self._timers[0][0] if self._timers else None

    def silent(self, now: float, among: Iterable[Key] | None = None) -> list[Key]:
        """Attempts with a worker that shows no sign of life."""
        return [key for key in (self._seen if among is None else among) if self._is_silent(key, now)]

    def forget(self, job: str, attempt: int) -> None:
        self._seen.pop((job, attempt), None)

    def _is_silent(self, key: Key, now: float) -> bool:
        workers = self._seen.get(key, _NOTHING).values()
        return any(s.status in ("starting", "unknown") and now - s.since >= RELAUNCH_AFTER for s in workers)

    def _see(
        self,
        key: Key,
        worker: int,
        report: WorkerReport | None,
        now: float,
        before: Mapping[Key, dict[int, LastReport]],
    ) -> None:
        status: Status = report.status if report is not None else "unknown"
        known = before[key].get(worker) if key in before else None
        since = known.since if known is not None and known.status == status else now
        sighting = LastReport(report, status, since)
        if key in self._seen:
            self._seen[key][worker] = sighting
        else:
            self._seen[key] = {worker: sighting}
        for wait in self._waits[status]:
            if since + wait > now:
                heapq.heappush(self._timers, (since + wait + _AFTER, *key))


_AFTER: Final = 0.001  # seconds, so that a timer never fires early by a rounding error
_NOTHING: Final[Mapping[int, LastReport]] = MappingProxyType({})
