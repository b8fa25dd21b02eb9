"""Summary statistics of a simulation: pure functions of its result.

Percentiles are interpolated linearly between the two nearest ranks (rank p/100 × (n - 1), counted from 0). Slowdown is
completion time over run time, with run times under ten seconds counted as ten. Fairness is Jain's index
(Σx)² / (n Σx²) over the mean slowdowns x of the n users, or of the queues where users are not known: 1 when all have
the same slowdown, 1/n when only one is slowed down. Utilisation and fragmentation are means over the time from the
first to the last submission, because afterwards the cluster only drains.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from muster.sim.model import JobResult, Money, Result, Sample, TraceJob

# Size classes: name, minimum and maximum accelerators of a job; 0 is a CPU-only job.
SIZES: Final[tuple[tuple[str, int, float], ...]] = (
    ("0", 0, 0), ("1", 1, 1), ("2-8", 2, 8), ("9-64", 9, 64), (">64", 65, float("inf")),
)  # fmt: skip
SHORTEST: Final = 10.0  # seconds; shorter run times make the slowdown meaningless


@dataclass(frozen=True, slots=True)
class Spread:
    """The distribution of a time over jobs, in seconds; None where there is no job."""

    count: int
    mean: float | None
    median: float | None
    p99: float | None
    p999: float | None


@dataclass(frozen=True, slots=True)
class Summary:
    """The statistics of one setup."""

    jobs: int  # finished jobs
    refused: int  # jobs that no node could ever hold, or that the rules forbid
    unfinished: int
    completion: Spread
    queueing: Spread
    by_size: dict[str, Spread]  # queueing
    utilisation: float | None  # fraction of the accelerators in use
    fragmentation: float | None  # fraction of the free accelerators that a typical gang can't use
    fairness: float | None
    fairness_over: str  # "users", "queues" or ""
    preemptions: int
    failures: int
    lost: float  # accelerator-hours
    rounds: int
    events: int
    wall: float  # seconds
    money: Money | None = None  # None: nothing has a price


def summarise(result: Result) -> Summary:
    done = [job for job in result.jobs if job.finished is not None and not job.refused]
    over, index = fairness(done)
    start, end = window([job.job for job in result.jobs])
    return Summary(
        jobs=len(done),
        refused=sum(1 for job in result.jobs if job.refused),
        unfinished=sum(1 for job in result.jobs if job.finished is None and not job.refused),
        completion=spread(job.completion for job in done),
        queueing=spread(job.queueing for job in done),
        by_size={
            name: found
            for name, least, most in SIZES
            if (found := spread(job.queueing for job in done if least <= job.job.size <= most)).count
        },
        utilisation=utilisation(result.samples, start, end),
        fragmentation=fragmentation(result.samples, start, end),
        fairness=index,
        fairness_over=over,
        preemptions=sum(job.preemptions for job in result.jobs),
        failures=sum(job.failures for job in result.jobs),
        lost=sum(job.lost for job in result.jobs) / 3600,
        rounds=result.rounds,
        events=result.events,
        wall=result.wall,
        money=result.money,
    )


def spread(values: Iterable[float]) -> Spread:
    ordered = sorted(values)
    if not ordered:
        return Spread(0, None, None, None, None)
    mean = sum(ordered) / len(ordered)
    return Spread(len(ordered), mean, *(percentile(ordered, p) for p in (50, 99, 99.9)))


def percentile(ordered: Sequence[float], p: float) -> float:
    """The percentile of values in ascending order, interpolated linearly between the nearest ranks."""
    place = (len(ordered) - 1) * p / 100
    below = min(int(place), len(ordered) - 2)
    if below < 0:
        return ordered[0]
    return ordered[below] + (ordered[below + 1] - ordered[below]) * (place - below)


def jain(values: Sequence[float]) -> float | None:
    """Jain's index (Σx)² / (n Σx²); None for fewer than two values."""
    squares = sum(value * value for value in values)
    if len(values) < 2 or not squares:
        return None
    return sum(values) ** 2 / (len(values) * squares)


def fairness(jobs: Iterable[JobResult]) -> tuple[str, float | None]:
    """What is compared ("users" or "queues"), and Jain's index of their mean slowdowns."""
    users, queues = defaultdict[str, list[float]](list), defaultdict[str, list[float]](list)
    for job in jobs:
        slowdown = max(1.0, job.completion / max(job.job.duration, SHORTEST))
        users[job.job.user].append(slowdown)
        queues[job.job.queue].append(slowdown)
    for name, groups in (("users", users), ("queues", queues)):
        if len(groups) > 1:
            return name, jain([sum(group) / len(group) for group in groups.values()])
    return "", None


def window(jobs: Iterable[TraceJob]) -> tuple[float, float]:
    """The times of the first and the last submission."""
    times = [job.submit for job in jobs]
    return (min(times), max(times)) if times else (0.0, 0.0)


def utilisation(samples: Sequence[Sample], start: float, end: float) -> float | None:
    """Accelerator-seconds in use divided by accelerator-seconds available."""
    spans = spans_of(samples, start, end)
    total = sum(length * sample.total for sample, length in spans)
    return sum(length * sample.used for sample, length in spans) / total if total else None


def fragmentation(samples: Sequence[Sample], start: float, end: float) -> float | None:
    """The mean over time of the fraction of free accelerators that can't be used; 0 for a full cluster."""
    spans = spans_of(samples, start, end)
    time = sum(length for _, length in spans)
    return sum(length * (1 - sample.usable) for sample, length in spans) / time if time else None


def spans_of(samples: Sequence[Sample], start: float, end: float) -> list[tuple[Sample, float]]:
    """Each sample with the seconds that it represents: until the next one, within the window."""
    found = [
        (one, min(following.time, end) - max(one.time, start))
        for one, following in pairwise(samples)
        if one.time < end and following.time > start
    ]
    if samples and samples[-1].time < end:
        found.append((samples[-1], end - max(samples[-1].time, start)))
    return found
