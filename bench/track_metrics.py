"""The metric store: how many points a second become durable, what a long curve costs to draw, and what a point weighs.

Appends go through `Ingest`, as a launcher's batches do: decoded, stored, acknowledged once durable. While they go on,
blocks are made beside, as in a server. Then a series of a million points is drawn as 2,000 buckets, whole and zoomed to
ranges of every width, by steps and by time. SQLite and PostgreSQL, each with its usual durability.
"""

from __future__ import annotations

import argparse
import os
import statistics
import struct
import time
from collections.abc import Sequence
from random import Random
from typing import Any

from sqlalchemy import text

from _databases import databases
from _machine import write
from muster.control.ingest import Ingest
from muster.store.base import Record, StreamWrite
from muster.store.commit import GroupCommit
from muster.store.registry import open_store
from muster.track.holders import Holder
from muster.track.metrics import Metrics
from muster.track.metrics.shapes import Axis
from muster.track.record_db import RecordDb
from muster.wire import Batch, Piece, row_struct, shape_record

POINTS = 1_000_000
BUCKETS = 2_000
WIDTHS = (1, 10)  # metrics a row
BATCH = 1 << 20  # bytes, at most; a launcher that is behind sends four times as many
LOOKS = 40  # curves of each kind


class Clock:
    def now(self) -> float:
        return time.time()


class Keeper:
    """Takes in points alone."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def open(self, run: str) -> str | None:
        return "default"

    def gone(self, run: str) -> bool:
        return False

    def records(
        self,
        run: str,
        attempt: int,
        project: str,
        batch: Batch,
        writes: Sequence[StreamWrite],
        docs: Sequence[tuple[int, dict[str, Any]]],
        now: float,
        holder: Holder | None = None,
    ) -> list[Record]:
        return [self._metrics.append(run, attempt, write.rank, write.columns) for write in writes]


class Bench:
    def __init__(self, url: str) -> None:
        self.store = open_store(url)
        self.commit = GroupCommit(self.store, on_commit=lambda events: None)
        self.commit.start()
        assert self.store.database is not None
        self.db = RecordDb(self.store.database, self.commit, time.time)
        self.metrics = Metrics(self.db)
        self.metrics.start()

    def close(self) -> None:
        self.metrics.close()
        self.commit.close()
        self.store.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--points", type=int, default=POINTS, help="in the series that is drawn")
    parser.add_argument("--quick", action="store_true", help="a tenth of it, and nothing is written")
    options = parser.parse_args()
    points = options.points // 10 if options.quick else options.points
    results: dict[str, Any] = {"points": points, "buckets": BUCKETS, "load_before": os.getloadavg()[0]}
    for name, url in databases():
        results[name] = measure(name, url, points)
    if not options.quick:
        write("track_metrics", results)


def measure(name: str, url: str, points: int) -> dict[str, Any]:
    bench = Bench(url)
    try:
        result: dict[str, Any] = {}
        for width in WIDTHS:
            result[f"append_{width}"] = append(bench, f"wide-{width}", width, points)
            print(f"{name}: {width} a row: {result[f'append_{width}']}")
        result["curve"] = {f"{axis} {kind}": each for axis in ("step", "time") for kind, each in look(bench, axis)}
        for kind, each in result["curve"].items():
            print(f"{name}: {kind}: {each}")
        result["worst_p50_ms"] = max(each["p50_ms"] for each in result["curve"].values())
        return result
    finally:
        bench.close()


def append(bench: Bench, run: str, width: int, points: int) -> dict[str, Any]:
    """One rank's rows, batch after batch; each is durable before the next is sent."""
    ingest = Ingest(bench.store, bench.commit, Clock(), 1 << 20, Keeper(bench.metrics))
    batches = list(spool(width, points))
    cpu, begun, offset, slowest = time.process_time(), time.perf_counter(), 0, 0.0
    for data in batches:
        at = time.perf_counter()
        ingest.accept(run, 1, Batch(0, "running", None, (Piece(0, "spool", offset, data),)))
        slowest = max(slowest, time.perf_counter() - at)
        offset += len(data)
    took = time.perf_counter() - begun
    bench.metrics.compact(run)
    settled = time.perf_counter() - begun
    stored = sum(one.points for one in bench.metrics.summaries([run])[run].values())
    assert stored == width * _rows(width, points), stored
    return {
        "stored": stored,
        "durable_per_s": round(stored / took),
        "compacted_per_s": round(stored / settled),
        "cpu_us_per_point": round(1e6 * (time.process_time() - cpu) / stored, 3),
        "slowest_batch_ms": round(1e3 * slowest, 1),
        "bytes_per_point": round(weight(bench, run) / stored, 2),
    }


def spool(width: int, points: int) -> Sequence[bytes]:
    """Losses as a training reports them: 32-bit numbers that fall with noise, a row every 50 ms or so."""
    most = BATCH // row_struct(width).size
    random, names = Random(width), tuple(f"metric_{i}" for i in range(width))
    layout, now, made, batches = row_struct(width), 1.75e9, [shape_record(0, names)], []
    for step in range(_rows(width, points)):
        now += random.gauss(0.05, 0.002)
        base = 8.0 / (1.0 + step / 1e5)
        values = [_float32(base + random.gauss(0.0, 0.05)) for _ in range(width)]
        made.append(layout.pack(1, 0, layout.size, step, now, *values))
        if len(made) >= most:
            batches.append(b"".join(made))
            made = []
    return [*batches, b"".join(made)] if made else batches


def _rows(width: int, points: int) -> int:
    return points if width == 1 else points // 5


def _float32(value: float) -> float:
    (small,) = struct.unpack("<f", struct.pack("<f", value))
    return float(small)


def weight(bench: Bench, run: str) -> int:
    """Bytes of a run's blocks, with what stands in its rows beside the points; without free pages of the database."""
    with bench.db.reading() as connection:
        beside = "length(name) + length(run) + 80"  # bytes of the other columns and of the index, roughly
        query = text(f"SELECT sum(length(data) + length(buckets) + {beside}) FROM metric_blocks WHERE run = :run")
        return int(connection.execute(query, {"run": run}).scalar_one())


def look(bench: Bench, axis: Axis) -> list[tuple[str, dict[str, float]]]:
    """Curves of the long series: whole, and zoomed to random ranges that hold a share of its points."""
    random, found = Random(7), []
    ends = bench.metrics.curve("wide-1", "metric_0", buckets=1, axis=axis).buckets
    low, high = (ends.first_step, ends.last_step) if axis == "step" else (ends.first_time, ends.last_time)
    for share in (1.0, 0.5, 0.2, 0.15, 0.05, 0.01, 0.002):
        times, buckets = [], 0
        for _ in range(LOOKS):
            span = float(high[0] - low[0]) * share
            start = float(low[0]) + random.random() * (float(high[0] - low[0]) - span)
            edges = (None, None) if share == 1.0 else (start, start + span)
            begun = time.perf_counter()
            curve = bench.metrics.curve("wide-1", "metric_0", buckets=BUCKETS, axis=axis, start=edges[0], stop=edges[1])
            times.append(1e3 * (time.perf_counter() - begun))
            buckets = len(curve.buckets)
        times.sort()
        kind = "whole" if share == 1.0 else f"zoom {share:.1%}"
        figures = {"p50_ms": statistics.median(times), "p95_ms": times[int(0.95 * len(times))], "max_ms": times[-1]}
        found.append((kind, {**{key: round(value, 2) for key, value in figures.items()}, "buckets": buckets}))
    return found


if __name__ == "__main__":
    main()
