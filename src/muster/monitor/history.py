"""The history of a pool as figures for capacity planning: buckets of any length, and one summary of all of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from muster.api.history import Figures, PoolHistory
from muster.monitor import rollup
from muster.monitor.rollup import DAY, KEPT, MINUTE, Bucket, merge

_HOUR: Final = 3600
_STEPS: Final = (
    MINUTE, 2 * MINUTE, 5 * MINUTE, 15 * MINUTE, 30 * MINUTE, _HOUR, 2 * _HOUR, 3 * _HOUR, 6 * _HOUR, 12 * _HOUR,
    DAY, 2 * DAY, 7 * DAY, 30 * DAY, 90 * DAY, 365 * DAY,
)  # fmt: skip
_SHOWN: Final = 100  # maximum buckets in a chart


def step_for(seconds: float) -> int:
    """The shortest step that shows this time span in a hundred buckets. Its resolution is kept for that long."""
    return next((step for step in _STEPS if seconds <= step * _SHOWN), _STEPS[-1])


def resolution_for(step: int) -> int:
    """The longest buckets that this step is a multiple of; the step is a whole number of minutes."""
    return max(resolution for resolution in KEPT if step % resolution == 0)


def grouped(rows: Iterable[tuple[int, Bucket]], step: int) -> dict[int, Bucket]:
    """Buckets, by their start in seconds, merged into longer ones."""
    found: dict[int, list[Bucket]] = {}
    for start, bucket in rows:
        found.setdefault(start // step * step, []).append(bucket)
    return {start: merge(found[start]) for start in sorted(found)}


def history(pool: str, buckets: Mapping[int, Bucket]) -> PoolHistory:
    """Figures of each bucket, and of all of them together."""
    return {
        "pool": pool,
        "summary": figures(merge(buckets.values())),
        "buckets": [{"start": start, **figures(bucket)} for start, bucket in buckets.items()],
    }


def figures(bucket: Bucket) -> Figures:
    """Means are over the observed time; None: not known. In seconds, accelerators, CPUs and jobs."""
    waits, peak = bucket.waits, bucket.peak
    return {
        "observed": bucket.ms / 1000,
        "accelerators": {
            "used": bucket.mean(rollup.USED),
            "most_used": bucket.high(rollup.USED),
            "there": bucket.mean(rollup.THERE),
            "share": bucket.ratio(rollup.USED, rollup.THERE),
            "out_of_use": bucket.mean(rollup.OUT),
        },
        "cpus": {
            "used": bucket.mean(rollup.CPUS_USED),
            "most_used": bucket.high(rollup.CPUS_USED),
            "there": bucket.mean(rollup.CPUS),
            "share": bucket.ratio(rollup.CPUS_USED, rollup.CPUS),
        },
        "queued": {
            "jobs": bucket.mean(rollup.JOBS),
            "most_jobs": bucket.high(rollup.JOBS),
            "accelerators": bucket.mean(rollup.ASKED),
            "most_accelerators": bucket.high(rollup.ASKED),
            "free_then": -peak[1] / 1000 if peak is not None else None,
        },
        "waits": {
            "count": waits.count,
            "mean": waits.mean(),
            "p50": waits.quantile(0.5),
            "p90": waits.quantile(0.9),
            "longest": waits.high / 1000 if waits.count else None,
        },
        "usable_share": bucket.ratio(rollup.USABLE, rollup.FREE),
    }
