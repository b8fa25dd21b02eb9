"""What gangs count against: the quotas of queues, and the limits on running jobs of queues, users and projects."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field

from muster.core.job import Job, Seat
from muster.core.resources import WHOLE
from muster.sched.quota import Quotas


@dataclass(slots=True)
class Limits:
    quotas: Quotas = field(default_factory=Quotas)
    limited: bool = False  # whether limits on running jobs exist
    counts: Counter[tuple[str, ...]] = field(default_factory=Counter)  # ("queue", name) → running gangs, and so on
    weights: defaultdict[tuple[str, ...], float] = field(default_factory=lambda: defaultdict(float))  # accelerators

    def add(self, job: Job, pool: str, seats: tuple[Seat, ...]) -> None:
        self._change(job, pool, seats, +1)

    def remove(self, job: Job, pool: str, seats: tuple[Seat, ...]) -> None:
        self._change(job, pool, seats, -1)

    def _change(self, job: Job, pool: str, seats: tuple[Seat, ...], sign: int) -> None:
        weight = weight_of(seats)
        self.quotas.change(job.queue, pool, sign * weight)
        counts = self.counts
        counts["queue", job.queue] += sign
        counts["user", job.queue, job.user] += sign
        counts["project", job.project] += sign
        if self.limited:
            self.weights["user", job.queue, job.user] += sign * weight
            self.weights["project", job.project] += sign * weight


def weight_of(seats: tuple[Seat, ...]) -> float:
    """Accelerators that the seats take."""
    return sum([len(seat.devices) * seat.share for seat in seats]) / WHOLE
