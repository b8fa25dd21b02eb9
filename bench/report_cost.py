"""What `runtime.report` costs a training step, what one process sustains, and what a SIGKILL loses.

Peers, in the same run and in turn with it: a line of JSON to a buffered file and to one flushed every step (what many
scripts do by hand), `logging` to a file, and TensorBoard's writer where it is installed.
"""

from __future__ import annotations

import json
import logging
import mmap
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from _machine import write
from muster.control.decode import decode
from muster.runtime.reporter import Reporter
from muster.runtime.spool import SpoolReader

CALLS = 20_000  # a repeat
REPEATS = 25
SUSTAIN_SECONDS = 3.0
GOAL_NS = 2000
GOAL_SCALARS = 300_000  # a second
KILLS = 5
Report = Callable[[int, float], object]


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        cost = costs(folder)
        result: dict[str, Any] = {
            "claim": "report(step=i, loss=x) takes 2 us at most, 300,000 scalars/s are sustained, SIGKILL loses none",
            "ns_per_call": cost,
            "ratio_to_muster": {k: round(v["median"] / cost["muster report"]["median"], 2) for k, v in cost.items()},
            "sustained_scalars_per_s": {f"{width} a call": sustained(folder, width) for width in (1, 10)},
            "decode_300k_scalars_ms": decoding(folder),
            "sigkill": [killed(folder, round_) for round_ in range(KILLS)],
        }
    result["held"] = {
        "cost": cost["muster report"]["median"] <= GOAL_NS,
        "rate": min(result["sustained_scalars_per_s"].values()) >= GOAL_SCALARS,
        "nothing lost": all(each["lost"] == 0 for each in result["sigkill"]),
    }
    write("report_cost", result)


def costs(folder: Path) -> dict[str, dict[str, float]]:
    """Nanoseconds a call: elapsed, and of processor time, which leaves out what other processes on the machine took.

    The repeats of all take turns, so that a busy machine is unfair to none of them.
    """
    subjects = {"an empty function": empty(), **peers(folder), "muster report": muster(folder)}
    seen: dict[str, list[tuple[float, float]]] = {name: [] for name in subjects}
    for _ in range(REPEATS):
        for name, run in subjects.items():
            elapsed, processor = time.perf_counter_ns(), time.thread_time_ns()
            run()
            seen[name].append((time.perf_counter_ns() - elapsed, time.thread_time_ns() - processor))
    return {name: _summary(pairs) for name, pairs in seen.items()}


def _summary(pairs: list[tuple[float, float]]) -> dict[str, float]:
    elapsed, processor = ([ns / CALLS for ns in column] for column in zip(*pairs, strict=True))
    return {
        "median": round(statistics.median(elapsed)),
        "best": round(min(elapsed)),
        "median_processor": round(statistics.median(processor)),
    }


def muster(folder: Path) -> Callable[[], None]:
    (folder / "rank").mkdir()
    report = Reporter(folder / "rank").report

    def run() -> None:
        loss = 0.5
        for step in range(CALLS):
            report(step=step, loss=loss)

    return run


def empty() -> Callable[[], None]:
    def nothing(step: int, **metrics: float) -> None:
        pass

    def run() -> None:
        loss = 0.5
        for step in range(CALLS):
            nothing(step=step, loss=loss)

    return run


def peers(folder: Path) -> dict[str, Callable[[], None]]:
    found = {
        "json line, buffered": timed(json_lines(folder / "buffered.jsonl", flush=False)),
        "json line, flushed": timed(json_lines(folder / "flushed.jsonl", flush=True)),
        "logging to a file": timed(log_lines(folder / "log.txt")),
    }
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        return found
    board = SummaryWriter(str(folder / "board"))
    return {**found, "tensorboard": timed(lambda step, loss: board.add_scalar("loss", loss, step))}


def timed(report: Report) -> Callable[[], None]:
    def run() -> None:
        loss = 0.5
        for step in range(CALLS):
            report(step, loss)

    return run


def json_lines(path: Path, flush: bool) -> Report:
    file = path.open("w")

    def report(step: int, loss: float) -> None:
        file.write(json.dumps({"step": step, "time": time.time(), "loss": loss}) + "\n")
        if flush:
            file.flush()

    return report


def log_lines(path: Path) -> Report:
    logger = logging.getLogger("bench")
    logger.setLevel(logging.INFO)
    logger.propagate = False
    logger.addHandler(logging.FileHandler(path))
    return lambda step, loss: logger.info("step %d loss %f", step, loss)


DRAIN = """
import sys
from pathlib import Path
from muster.runtime.spool import SpoolReader
reader, at = SpoolReader(Path(sys.argv[1])), 0
ended = False
while True:
    data = reader.read(at, 1 << 20, final=ended)
    at += len(data)
    reader.drop_before(at)
    if not data:
        if ended:
            break
        ended = not sys.stdin.readline().strip()  # one line a look; the end of the input is the end
print(at)
"""


def sustained(folder: Path, width: int) -> int:
    """Scalars a second over a few seconds, while another process reads and drops what was written."""
    rank = folder / f"sustained-{width}"
    rank.mkdir()
    report = Reporter(rank).report
    metrics = {f"m{i}": 0.5 for i in range(width)}
    drain = subprocess.Popen([sys.executable, "-c", DRAIN, str(rank)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert drain.stdin is not None
    steps, began = 0, time.perf_counter()
    while time.perf_counter() - began < SUSTAIN_SECONDS:
        for _ in range(10_000):
            report(step=steps, **metrics)
            steps += 1
        drain.stdin.write(b"look\n")
        drain.stdin.flush()
    seconds = time.perf_counter() - began
    shipped = int(drain.communicate()[0])
    assert shipped == SpoolReader(rank).committed() > steps * 8 * width
    return round(steps * width / seconds)


def decoding(folder: Path) -> dict[str, float]:
    """Milliseconds in which the server's side turns 300,000 scalars into columns."""
    found = {}
    for width in (1, 10):
        rank = folder / f"decode-{width}"
        rank.mkdir()
        reporter = Reporter(rank)
        for step in range(300_000 // width):
            reporter.report(step=step, **{f"m{i}": 0.5 for i in range(width)})
        data = SpoolReader(rank).read(0, 1 << 30, final=True)
        began = time.perf_counter()
        columns = decode(data, {}).columns
        found[f"{width} a row"] = round(1e3 * (time.perf_counter() - began), 1)
        assert sum(len(column.values) for column in columns.values()) == 300_000
    return found


VICTIM = """
import mmap, sys
import muster.runtime as muster
with open(sys.argv[1], "r+b") as file:
    count = memoryview(mmap.mmap(file.fileno(), 8)).cast("Q")
step = 0
while True:
    muster.report(step=step, loss=0.5)
    step += 1
    count[0] = step
"""


def killed(folder: Path, round_: int) -> dict[str, int]:
    """A process that reports at full speed and counts, in memory that outlives it, what it has reported; SIGKILL."""
    rank, counter = folder / f"killed-{round_}", folder / f"counter-{round_}"
    rank.mkdir()
    counter.write_bytes(bytes(8))
    with counter.open("rb") as file, mmap.mmap(file.fileno(), 8, access=mmap.ACCESS_READ) as count:
        env = {**os.environ, "MUSTER_RANK_DIR": str(rank)}
        victim = subprocess.Popen([sys.executable, "-c", VICTIM, str(counter)], env=env)
        while int.from_bytes(count[:8], "little") < random.Random(round_).randrange(100_000, 500_000):
            time.sleep(0.001)
        victim.send_signal(signal.SIGKILL)
        victim.wait()
        reported = int.from_bytes(count[:8], "little")
    steps = decode(SpoolReader(rank).read(0, 1 << 30, final=True), {}).columns["loss"].steps
    assert list(steps) == list(range(len(steps)))
    return {"reported": reported, "recovered": len(steps), "lost": max(0, reported - len(steps))}


if __name__ == "__main__":
    main()
