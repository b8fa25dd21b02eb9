"""Live metrics: passes points of runs to subscribers as they become durable.

Ingest never waits for a subscriber. A slow subscriber keeps what fits. What doesn't fit is counted by run, so that the
subscriber can read those runs from the metric store instead. Nothing is dropped without being reported.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Final

from muster.store.base import Column

SIZE: Final = 100_000  # maximum points that a subscription holds


@dataclass(frozen=True, slots=True)
class Points:
    """New points of one metric of one rank, in the order in which they were reported."""

    run: str
    attempt: int
    rank: int
    name: str
    column: Column


@dataclass(frozen=True, slots=True)
class Taken:
    """What a subscriber gets. `missed`: run → number of its points that did not fit since the last `take`."""

    points: list[Points] = field(default_factory=list)
    missed: dict[str, int] = field(default_factory=dict)


class Subscription:
    """The points of `run`, or of all runs if it is None; of the metrics `names`, or of all if it is None.

    `wake` is set when there are some.
    """

    def __init__(
        self, name: str, run: str | None, names: Collection[str] | None, size: int, wake: threading.Event | None = None
    ) -> None:
        self.name, self.run, self._wake = name, run, wake
        self._names = None if names is None else frozenset(names)
        self._size = size
        self._points: deque[Points] = deque()
        self._held = 0  # points in the queue
        self._missed: dict[str, int] = {}
        self._changed = threading.Condition()

    def take(self, seconds: float | None = 0.0) -> Taken:
        """All points since the last call. Waits up to `seconds` for the first one; None waits without a limit."""
        with self._changed:
            self._changed.wait_for(lambda: self._points or self._missed, seconds)
            taken = Taken(list(self._points), self._missed)
            self._points, self._held, self._missed = deque(), 0, {}
            return taken

    @property
    def waiting(self) -> int:
        """Number of points that were not taken yet."""
        return self._held

    def _put(self, run: str, attempt: int, rank: int, columns: Mapping[str, Column]) -> None:
        with self._changed:
            for name, column in columns.items():
                if self._names is not None and name not in self._names:
                    continue
                count = len(column.steps)
                if self._held + count > self._size:
                    self._missed[run] = self._missed.get(run, 0) + count
                else:
                    self._points.append(Points(run, attempt, rank, name, column))
                    self._held += count
            self._changed.notify_all()
        if self._wake is not None and (self._points or self._missed):
            self._wake.set()


class MetricTap:
    """All methods may be called from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # Replaced, never changed, so that `publish` needs no lock.
        self._by_run: dict[str | None, tuple[Subscription, ...]] = {}

    def subscribe(
        self,
        name: str,
        run: str | None = None,
        names: Collection[str] | None = None,
        size: int = SIZE,
        wake: threading.Event | None = None,
    ) -> Subscription:
        """Subscribes to points from now on. `name` is for display."""
        made = Subscription(name, run, names, size, wake)
        with self._lock:
            self._by_run = {**self._by_run, run: (*self._by_run.get(run, ()), made)}
        return made

    def unsubscribe(self, subscription: Subscription) -> None:
        with self._lock:
            left = tuple(one for one in self._by_run.get(subscription.run, ()) if one is not subscription)
            others = {run: some for run, some in self._by_run.items() if run != subscription.run}
            self._by_run = {**others, subscription.run: left} if left else others

    def publish(self, run: str, attempt: int, rank: int, columns: Mapping[str, Column]) -> None:
        """Called once the points are durable. Costs one lookup when there is no subscriber."""
        found = self._by_run
        for subscription in (*found.get(run, ()), *found.get(None, ())):
            subscription._put(run, attempt, rank, columns)

    def subscriptions(self) -> list[Subscription]:
        return [one for some in self._by_run.values() for one in some]
