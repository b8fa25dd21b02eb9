"""The curves of trials as their reports become durable: from the metric tap, and from the record after a restart."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from muster.control.metric_tap import MetricTap, Points, Subscription
from muster.track.metrics import Metrics
from muster.tune.observe import Curves


class CurveSource(Protocol):
    """Where the values of trials come from: of a server's record, or of a simulation."""

    def follow(self, run: str, metrics: Sequence[str]) -> None:
        """From now on, the run is in `news` when it has new points. One that is followed already stays as it is."""

    def forget(self, run: str) -> None:
        """The run is over, or pauses."""

    def news(self) -> Iterable[str]:
        """The followed runs that have new points since the last call; a run is new when it is followed."""

    def curves(self, run: str, metrics: Sequence[str]) -> Curves:
        """All points of a run that are durable by now."""


@dataclass(slots=True)
class _Followed:
    subscription: Subscription
    metrics: tuple[str, ...]
    curves: dict[str, list[tuple[int, float]]] = field(default_factory=dict)  # as far as they are read
    ranks: dict[str, int] = field(default_factory=dict)  # metric → the rank whose points count
    attempt: int = 0  # of the newest points
    whole: bool = False  # whether `curves` has all points of the record


class LiveCurves:
    """Of a server. New points are added to what is known. Where they go back, by a restart or out of order, the curve
    is read again from the record, where they replace what was there."""

    def __init__(self, tap: MetricTap, metrics: Metrics, wake: threading.Event) -> None:
        self._tap, self._metrics, self._wake = tap, metrics, wake
        self._followed: dict[str, _Followed] = {}
        self._new: dict[str, None] = {}

    def follow(self, run: str, metrics: Sequence[str]) -> None:
        if run not in self._followed:
            subscription = self._tap.subscribe("studies", run, metrics, wake=self._wake)
            self._followed[run] = _Followed(subscription, tuple(metrics))
            self._new[run] = None

    def forget(self, run: str) -> None:
        one = self._followed.pop(run, None)
        if one is not None:
            self._tap.unsubscribe(one.subscription)
        self._new.pop(run, None)

    def news(self) -> Iterable[str]:
        found, self._new = self._new, {}
        for run, one in self._followed.items():
            taken = one.subscription.take()
            if taken.missed:
                one.whole = False
            for points in taken.points:
                one.whole = one.whole and _append(one, points)
            if taken.points or taken.missed:
                found[run] = None
        return list(found)

    def curves(self, run: str, metrics: Sequence[str]) -> Curves:
        one = self._followed.get(run)
        if one is None or any(name not in one.metrics for name in metrics):
            return {name: self._read(run, name)[0] for name in metrics}
        if not one.whole:
            # What is published meanwhile is read now and taken later: adding it twice is noticed, and read again.
            read = {name: self._read(run, name) for name in one.metrics}
            one.curves = {name: points for name, (points, _, _) in read.items()}
            one.ranks = {name: rank for name, (_, rank, _) in read.items() if rank is not None}
            one.attempt = max((attempt for _, _, attempt in read.values()), default=0)
            one.whole = True
        return one.curves

    def _read(self, run: str, name: str) -> tuple[list[tuple[int, float]], int | None, int]:
        """The points, the rank that reported them, and their last attempt. Of two for one step, the later one counts:
        they are in the order of their arrival."""
        ranks = [one.rank for one in self._metrics.series(run) if one.name == name]
        if not ranks:
            return [], None, 0
        points = self._metrics.points(run, name, rank=min(ranks))
        by_step = dict(zip(points.step.tolist(), points.value.tolist(), strict=True))
        return sorted(by_step.items()), min(ranks), int(points.attempt.max()) if len(points) else 0


def _append(one: _Followed, points: Points) -> bool:
    """Adds new points to a curve; False if they do not simply follow those that are known."""
    rank = one.ranks.setdefault(points.name, points.rank)
    if points.rank != rank:
        return points.rank > rank  # of another rank than the first, whose points alone count
    if points.attempt < one.attempt:
        return False
    if points.attempt > one.attempt:
        one.attempt = points.attempt
        return False
    curve = one.curves.setdefault(points.name, [])
    for step, value in zip(points.column.steps, points.column.values, strict=True):
        if curve and step <= curve[-1][0]:
            return False
        curve.append((int(step), float(value)))
    return True
