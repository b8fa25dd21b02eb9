"""Scalars that arrive: one rank reports as fast as it can through a real server, and every point is counted there.

Then the same with the rank SIGKILLed in full flight: what it had reported is counted in shared memory by the rank
itself, and compared with what the server has.
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from _machine import write
from muster.client import Client
from submit_latency import muster_server

SECONDS = 10.0
WIDTHS = (1, 10)  # scalars a report
RANK = """
import mmap, os, struct, sys, time
import muster.runtime as m
seconds, width, counter = float(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
file = open(counter, "w+b"); file.truncate(16); shared = mmap.mmap(file.fileno(), 16)
names = {f"metric_{i}": float(i) for i in range(width)}
begun = time.perf_counter(); step = 0
while time.perf_counter() - begun < seconds:
    for _ in range(1000):
        step += 1
        m.report(step=step, **names)
        struct.pack_into("<q", shared, 0, step)
struct.pack_into("<d", shared, 8, time.perf_counter() - begun)
"""


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, muster_server(Path(folder) / "home") as client:
        script = Path(folder) / "rank.py"
        script.write_text(RANK)
        results = {}
        for width in WIDTHS:
            whole = flood(client, script, Path(folder) / f"whole-{width}", width)
            killed = flood(client, script, Path(folder) / f"killed-{width}", width, kill_after=SECONDS / 2)
            rate, lag = whole["reported_per_s"], whole["lag_s"]
            print(f"{width} a report: {rate:,} scalars/s; all {whole['reported']:,} stored {lag} s after the last")
            print(f"   killed in full flight: {killed['reported']:,} reported, {killed['lost']} lost")
            results[f"width_{width}"] = {"whole": whole, "killed": killed}
    write("ingest", results)


def flood(client: Client, script: Path, counter: Path, width: int, kill_after: float | None = None) -> dict[str, float]:
    seconds = SECONDS if kill_after is None else 10 * SECONDS
    run = f"exec {sys.executable} {script} {seconds} {width} {counter}"
    begun = time.perf_counter()
    job = client.submit({"name": "flood", "run": run, "workdir": str(script.parent), "retry": 0})
    if kill_after is not None:
        while not counter.exists():
            time.sleep(0.01)
        time.sleep(kill_after)
        os.kill(rank_pid(script), signal.SIGKILL)
    client.wait(job.id)
    ended = time.perf_counter()
    raw = counter.read_bytes()
    steps = int.from_bytes(raw[:8], "little")
    found: list[Mapping[str, Any]] = [client.metrics(job.id, f"metric_{i}") for i in range(width)]
    stored = sum(len(attempt["steps"]) for one in found for attempt in one["attempts"])
    took = kill_after or seconds
    return {
        "reported": steps * width,
        "stored": stored,
        "lost": steps * width - stored,
        "reported_per_s": round(steps * width / took),
        "stored_per_s": round(stored / (ended - begun)),
        "lag_s": round(ended - begun - took, 2),
    }


def rank_pid(script: Path) -> int:
    for entry in Path("/proc").iterdir():
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0")
        except (OSError, NotADirectoryError):
            continue
        if entry.name.isdigit() and str(script).encode() in words and words[0].endswith(b"python"):
            return int(entry.name)
    raise SystemExit("the rank is not running")


if __name__ == "__main__":
    main()
