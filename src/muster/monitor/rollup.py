"""Use, queue depth and waits in time buckets that merge exactly, so that months of them take little space.

All values are integers (thousandths, milliseconds, counts), so that sums don't depend on their order: the bucket of a
day is the same whether it was computed from samples, from minutes or from quarters of an hour.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import reduce
from typing import Final

MINUTE: Final = 60
QUARTER: Final = 900
DAY: Final = 86_400
KEPT: Final[dict[int, int | None]] = {  # seconds of a bucket → seconds it is kept; None: for ever
    MINUTE: 2 * DAY,
    QUARTER: 60 * DAY,
    DAY: None,
}
ALL: Final = ""  # stands for all pools together

# The values of a sample of a pool. Accelerators and CPUs are in thousandths, and so are jobs, to have one unit.
USED, THERE, CPUS_USED, CPUS = "used", "there", "cpus_used", "cpus"
FREE, OUT, USABLE = "free", "out", "usable"  # accelerators: free; idle but not healthy; free for a typical gang
# Of the free accelerators, those that no typical request could use, by what is missing beside them.
NO_CPUS, NO_MEMORY, NO_REST = "no_cpus", "no_memory", "no_rest"
JOBS, ASKED = "jobs", "asked"  # queued jobs, and the accelerators that they request
Sample = Mapping[str, int]

_BINS: Final = 4  # bins of waits per doubling: each is 19 % wider than the one before
_LAST_BIN: Final = 1 + _BINS * 25  # 2^25 seconds, more than a year, and anything longer


@dataclass(frozen=True, slots=True)
class Gauge:
    total: int  # thousandths × milliseconds
    low: int
    high: int


@dataclass(frozen=True, slots=True)
class Waits:
    """Waits of jobs that started: count, sum and extremes in milliseconds, and a histogram."""

    count: int = 0
    total: int = 0
    low: int = 0
    high: int = 0
    bins: Mapping[int, int] = field(default_factory=dict)

    def mean(self) -> float | None:
        """In seconds."""
        return self.total / self.count / 1000 if self.count else None

    def quantile(self, share: float) -> float | None:
        """In seconds, accurate to a tenth: the middle of the bin, limited to the extremes."""
        left = max(1, math.ceil(share * self.count))
        for index in sorted(self.bins):
            left -= self.bins[index]
            if left <= 0:
                return min(max(_middle(index), self.low / 1000), self.high / 1000)
        return None


@dataclass(frozen=True, slots=True)
class Bucket:
    ms: int = 0  # observed part of its time
    gauges: Mapping[str, Gauge] = field(default_factory=dict)
    peak: tuple[int, int] | None = None  # maximum of requested accelerators, and minus those free at that time
    waits: Waits = field(default_factory=Waits)

    def mean(self, name: str) -> float | None:
        """Mean over the observed time; None when nothing was observed."""
        gauge = self.gauges.get(name)
        return gauge.total / self.ms / 1000 if gauge is not None and self.ms else None

    def ratio(self, part: str, whole: str) -> float | None:
        """Ratio of two gauges over time; None when the whole is zero."""
        one, other = self.gauges.get(part), self.gauges.get(whole)
        return one.total / other.total if one is not None and other is not None and other.total else None

    def high(self, name: str) -> float | None:
        gauge = self.gauges.get(name)
        return gauge.high / 1000 if gauge is not None else None


EMPTY: Final = Bucket()


def merge(buckets: Iterable[Bucket]) -> Bucket:
    """Merges buckets into one."""
    return reduce(_merged, buckets, EMPTY)


def held(sample: Sample, start: int, end: int, resolution: int) -> Iterator[tuple[int, Bucket]]:
    """Buckets, by their start in seconds, for a sample that was valid from `start` to `end` (milliseconds)."""
    at = start
    while at < end:
        bucket = at // (1000 * resolution) * resolution
        until = min(end, 1000 * (bucket + resolution))
        gauges = {name: Gauge(value * (until - at), value, value) for name, value in sample.items()}
        yield bucket, Bucket(until - at, gauges, (sample.get(ASKED, 0), -sample.get(FREE, 0)))
        at = until


def waited(seconds: float) -> Bucket:
    """The bucket of one job that started after this wait."""
    ms = max(0, round(seconds * 1000))
    return Bucket(waits=Waits(1, ms, ms, ms, {_bin(ms): 1}))


def start_of(moment: float, resolution: int) -> int:
    """The start of the bucket of this time, in seconds since 1970 (UTC)."""
    return math.floor(moment) // resolution * resolution


def to_text(bucket: Bucket) -> str:
    """Compact JSON. A gauge that did not change is one number, which is the usual case in a minute."""
    doc: dict[str, object] = {}
    if bucket.ms:
        doc["ms"] = bucket.ms
        doc["g"] = {name: _gauge_doc(gauge, bucket.ms) for name, gauge in bucket.gauges.items()}
    if bucket.peak is not None:
        doc["p"] = bucket.peak
    waits = bucket.waits
    if waits.count:
        bins = [number for index in sorted(waits.bins) for number in (index, waits.bins[index])]
        doc["w"] = [waits.count, waits.total, waits.low, waits.high, *bins]
    return json.dumps(doc, separators=(",", ":"))


def from_text(text: str) -> Bucket:
    doc = json.loads(text)
    ms = doc.get("ms", 0)
    gauges = {
        name: Gauge(raw * ms, raw, raw) if isinstance(raw, int) else Gauge(*raw)
        for name, raw in doc.get("g", {}).items()
    }
    peak = tuple(doc["p"]) if "p" in doc else None
    count, total, low, high, *bins = doc.get("w", (0, 0, 0, 0))
    waits = Waits(count, total, low, high, dict(zip(bins[::2], bins[1::2], strict=True)))
    return Bucket(ms, gauges, peak, waits)


def _merged(one: Bucket, other: Bucket) -> Bucket:
    gauges = dict(one.gauges)
    for name, gauge in other.gauges.items():
        known = gauges.get(name)
        gauges[name] = gauge if known is None else _both(known, gauge)
    peaks = [peak for peak in (one.peak, other.peak) if peak is not None]
    return Bucket(one.ms + other.ms, gauges, max(peaks, default=None), _all_waits(one.waits, other.waits))


def _both(one: Gauge, other: Gauge) -> Gauge:
    return Gauge(one.total + other.total, min(one.low, other.low), max(one.high, other.high))


def _all_waits(one: Waits, other: Waits) -> Waits:
    if not one.count or not other.count:
        return other if other.count else one
    bins = dict(one.bins)
    for index, count in other.bins.items():
        bins[index] = bins.get(index, 0) + count
    low, high = min(one.low, other.low), max(one.high, other.high)
    return Waits(one.count + other.count, one.total + other.total, low, high, bins)


def _gauge_doc(gauge: Gauge, ms: int) -> int | list[int]:
    if gauge.low == gauge.high and gauge.total == gauge.low * ms:
        return gauge.low
    return [gauge.total, gauge.low, gauge.high]


def _bin(ms: int) -> int:
    """0 is under a second."""
    return 0 if ms < 1000 else min(1 + math.floor(_BINS * math.log2(ms / 1000)), _LAST_BIN)


def _middle(index: int) -> float:
    return 0.5 if index == 0 else float(2 ** ((index - 0.5) / _BINS))
