"""What a store keeps about the past in addition to the log: roll-ups of use, and how long jobs waited to start."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from muster.core.job import Job
from muster.core.rules import HIGH, WORK_CLASSES, Rules, WorkClass
from muster.core.spec import work_class

UNSTARTED: Final = ("queued", "starting")  # possible phases of a job that has not started yet
LevelKey = tuple[WorkClass, bool]  # a class of work, and whether its priority is high


@dataclass(frozen=True, slots=True)
class Rollup:
    """One time bucket of one pool. The store does not interpret `data`."""

    resolution: int  # seconds
    start: int  # seconds since 1970, UTC
    pool: str
    until: int  # milliseconds since 1970: use is counted up to here
    data: str


@dataclass(frozen=True, slots=True)
class LevelFilter:
    """Selects waits of jobs that first started at `since` or later, and of jobs that have not started by `now`."""

    since: float
    now: float
    targets: Mapping[LevelKey, float]  # seconds, for every class of work and of priority
    projects: Sequence[str] | None = None
    queue: str | None = None


@dataclass(frozen=True, slots=True)
class Level:
    """The waits of one class of work and priority, in seconds from submission to first start."""

    work: WorkClass
    high: bool
    target: float
    started: int = 0
    within: int = 0  # started jobs that waited no longer than the target
    p50: float | None = None
    p90: float | None = None
    waiting: int = 0  # jobs that have not started yet
    late: int = 0  # waiting jobs that have already waited longer than the target


def targets_of(rules: Rules) -> dict[LevelKey, float]:
    """The targets that these rules set."""
    return {
        (work, high): rules.target(work, HIGH if high else HIGH - 1) for work in WORK_CLASSES for high in (False, True)
    }


def levels_of(want: LevelFilter, jobs: Iterable[Job]) -> list[Level]:
    """Computes from jobs what a database computes with queries."""
    waits: dict[LevelKey, list[float]] = {key: [] for key in want.targets}
    waiting: dict[LevelKey, list[float]] = {key: [] for key in want.targets}
    for job in jobs:
        if (want.projects is not None and job.project not in want.projects) or want.queue not in (None, job.queue):
            continue
        if job.seatless or job.behind_others:  # it waits for nothing, or for other jobs
            continue
        key = (work_class(job.spec), job.spec.priority >= HIGH)
        if job.started_at is None:
            if job.phase in UNSTARTED:
                waiting[key].append(want.now - job.submitted_at)
        elif job.started_at >= want.since:
            waits[key].append(job.started_at - job.submitted_at)
    return [
        level(key, target, waits[key], len(waiting[key]), sum(wait > target for wait in waiting[key]))
        for key, target in want.targets.items()
        if waits[key] or waiting[key]
    ]


def level(key: LevelKey, target: float, waits: Sequence[float], waiting: int, late: int) -> Level:
    """Percentiles by nearest rank, so that each is the wait of an actual job."""
    ordered = sorted(waits)
    count, within = len(ordered), bisect_right(ordered, target)
    p50, p90 = (ordered[(count * percent + 99) // 100 - 1] if ordered else None for percent in (50, 90))
    return Level(*key, target, count, within, p50, p90, waiting, late)
