"""Use of pools and waits of jobs over time, and whether waits met their targets."""

from typing import Literal

from muster.api.typed import TypedDict
from muster.api.words import WorkClass


class AcceleratorFigures(TypedDict):
    used: float | None
    most_used: float | None
    there: float | None
    share: float | None
    out_of_use: float | None


class CpuFigures(TypedDict):
    used: float | None
    most_used: float | None
    there: float | None
    share: float | None


class QueueFigures(TypedDict):
    jobs: float | None
    most_jobs: float | None
    accelerators: float | None
    most_accelerators: float | None
    free_then: float | None


class WaitFigures(TypedDict):
    count: int
    mean: float | None
    p50: float | None
    p90: float | None
    longest: float | None


class Figures(TypedDict):
    """Means are over the observed time; null: not known. In seconds, accelerators, CPUs and jobs."""

    observed: float
    accelerators: AcceleratorFigures
    cpus: CpuFigures
    queued: QueueFigures
    waits: WaitFigures
    usable_share: float | None


class BucketView(Figures):
    start: int


class PoolHistory(TypedDict):
    pool: str  # empty: all pools together
    summary: Figures
    buckets: list[BucketView]


class HistoryView(TypedDict):
    since: float
    now: float
    every: int
    kept: float | None
    pools: list[PoolHistory]


class LevelView(TypedDict):
    """Waits of one class of work, in seconds from submission to first start, against their target."""

    work: WorkClass
    priority: Literal["high", "standard"]
    target: float
    started: int
    within: int
    p50: float | None
    p90: float | None
    waiting: int
    late: int
    share: float | None


class ServiceLevels(TypedDict):
    queue: str | None
    since: float
    now: float
    levels: list[LevelView]
