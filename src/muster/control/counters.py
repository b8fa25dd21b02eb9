"""Plain counts of what the server does. They are kept where it happens, and read when Prometheus asks."""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from typing import Final

from muster.core.attempt_events import AttemptEnded
from muster.core.event import Event
from muster.core.job_events import JobEnd, JobRequeued
from muster.core.reasons import REASONS, Reason
from muster.core.state import State
from muster.monitor.families import OTHER, VALUES_MAX

Labels = tuple[str, ...]  # values, in the order of the family's labels
TICKS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)  # seconds
DELAYS: Final = (1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3600.0, 4 * 3600.0, 12 * 3600.0, 86400.0, 7 * 86400.0)
_COUNTED: Final = frozenset({
    "job.submitted", "job.succeeded", "job.failed", "job.stopped", "job.requeued", "attempt.running", "attempt.ended",
})  # fmt: skip


class Tally:
    """Counts by labels, of a bounded number."""

    def __init__(self) -> None:
        self._counts: dict[Labels, int] = {}

    def add(self, labels: Labels, count: int = 1) -> None:
        """For one thread at a time."""
        if labels not in self._counts and len(self._counts) >= VALUES_MAX:
            labels = (OTHER,) * len(labels)
        self._counts[labels] = self._counts.get(labels, 0) + count

    def read(self) -> Mapping[Labels, int]:
        return dict(self._counts)


class Durations:
    """Histograms of seconds by labels, of a bounded number."""

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = tuple(bounds)
        self._counts: dict[Labels, list[int]] = {}  # of each bucket; the last has no bound
        self._sums: dict[Labels, float] = {}

    def observe(self, labels: Labels, seconds: float) -> None:
        """For one thread at a time."""
        counts = self._counts.get(labels)
        if counts is None:
            labels = labels if len(self._counts) < VALUES_MAX else (OTHER,) * len(labels)
            counts = self._counts.setdefault(labels, [0] * (len(self.bounds) + 1))
        counts[bisect_left(self.bounds, seconds)] += 1
        self._sums[labels] = self._sums.get(labels, 0.0) + seconds

    def read(self) -> Mapping[Labels, tuple[list[int], float]]:
        """By labels: the counts of the buckets, each without the ones below it, and the sum of the seconds."""
        return {labels: (list(counts), self._sums.get(labels, 0.0)) for labels, counts in list(self._counts.items())}


class Counters:
    """What a leading server counts. Each has one thread that changes it, except for those of ingest."""

    def __init__(self) -> None:
        self.ticks, self.ticks_failed = Durations(TICKS), 0
        self.submitted, self.ended, self.restarts, self.failures = Tally(), Tally(), Tally(), Tally()
        self.delays = Durations(DELAYS)
        self.batches, self.points = 0, 0
        self.bytes = dict.fromkeys(("log", "spool", "host"), 0)  # by stream
        self._lock = threading.Lock()

    def ingested(self, sizes: Mapping[str, int], points: int) -> None:
        """A batch was stored: the new bytes of each stream, and the points in them."""
        with self._lock:
            self.batches += 1
            self.points += points
            for stream, size in sizes.items():
                self.bytes[stream] += size

    def committed(self, events: Sequence[Event], state: State) -> None:
        """For the thread that commits, which calls it after each transaction: it looks at few kinds of events."""
        for event in events:
            if event.kind in _COUNTED:
                self._count(event, state)

    def _count(self, event: Event, state: State) -> None:
        data = event.data
        if isinstance(data, JobEnd):
            self.ended.add((event.project, data.PHASE))
        elif isinstance(data, JobRequeued):
            self.restarts.add(_cause(data.reason))
        elif isinstance(data, AttemptEnded):
            if data.outcome == "failed":
                self.failures.add(_cause(data.reason))
        elif event.kind == "job.submitted":
            self.submitted.add((event.project,))
        else:
            self._started(event, state)

    def _started(self, event: Event, state: State) -> None:
        """The first start of a job. A later one is no wait of a user: the job was admitted already."""
        job = state.jobs.get(event.job)
        if job is not None and job.started_at == event.time and job.attempt is not None:
            self.delays.observe((job.queue, job.attempt.pool), max(0.0, job.started_at - job.submitted_at))


def _cause(reason: Reason) -> Labels:
    kind = REASONS.get(reason.code)
    return (kind.category, reason.code) if kind is not None else (OTHER, OTHER)
