"""Reduces a result's samples to few enough points to draw: means over equal time intervals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from muster.sim.model import Sample
from muster.sim.summary import spans_of


@dataclass(slots=True)
class Bucket:
    """The mean state of the cluster over one time interval."""

    time: float  # the middle of the interval
    length: float = 0.0  # seconds covered by samples
    used: float = 0.0  # accelerators
    total: float = 0.0
    queued: float = 0.0  # jobs
    by_queue: dict[str, float] = field(default_factory=dict)  # accelerators

    def add(self, sample: Sample, seconds: float) -> None:
        self.length += seconds
        self.used += sample.used * seconds
        self.total += sample.total * seconds
        self.queued += sample.queued * seconds
        for queue, used in sample.by_queue.items():
            self.by_queue[queue] = self.by_queue.get(queue, 0.0) + used * seconds

    def average(self) -> None:
        if self.length:
            self.used /= self.length
            self.total /= self.length
            self.queued /= self.length
            self.by_queue = {queue: used / self.length for queue, used in self.by_queue.items()}


def buckets(samples: Sequence[Sample], start: float, end: float, count: int) -> list[Bucket]:
    """`count` intervals from `start` to `end`; intervals without samples are left out."""
    if end <= start:
        return []
    width = (end - start) / count
    made = [Bucket(start + (number + 0.5) * width) for number in range(count)]
    for sample, length in spans_of(samples, start, end):
        begin = max(sample.time, start)
        finish = begin + length
        place = min(int((begin - start) / width), count - 1)
        while begin < finish and place < count:
            edge = finish if place == count - 1 else min(finish, start + (place + 1) * width)
            made[place].add(sample, max(0.0, edge - begin))
            begin, place = edge, place + 1
    for bucket in made:
        bucket.average()
    return [bucket for bucket in made if bucket.length]


def largest_queues(found: Sequence[Bucket], most: int) -> list[str]:
    """The queues with the most use, at most `most`, largest first."""
    used: dict[str, float] = {}
    for bucket in found:
        for queue, amount in bucket.by_queue.items():
            used[queue] = used.get(queue, 0.0) + amount * bucket.length
    return sorted(used, key=lambda queue: (-used[queue], queue))[:most]
