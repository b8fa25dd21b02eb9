"""A million jobs on 10,000 nodes of 8 through the real controller: in how many minutes, and what one more job costs.

The trace is made up, in the columns of the public ones and of the kind that they show: most jobs are small and short, a
few are large or last for days, some users and queues submit far more than others, and nights are quieter than days.
Fewer jobs are submitted at the same rate for a shorter time, so that the cost of a job can be compared.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import json
import random
import resource
import tempfile
from collections.abc import Iterator
from math import exp
from pathlib import Path
from typing import Any

from _machine import write
from _replay import load, play
from muster.sim.presets import PRESETS

COLUMNS = ("job_id", "user", "vc", "submit_s", "duration_s", "gpus", "cpus", "nodes", "gpu_type", "status")
PER_NODE = 8
QUEUES, USERS = 50, 20  # users of each queue
SIZES = {1: 600, 2: 80, 4: 90, 8: 170, 16: 30, 32: 20, 64: 8, 128: 2}  # accelerators of a job → how often
MEDIAN, SPREAD, LONGEST = 150.0, 2.8, 1_200_000.0  # seconds of one accelerator; of the logarithm; seconds
WIDER = 0.4  # large jobs last longer: by their size to this power
HABIT = 0.6  # of the spread, the part that is between users and not between the jobs of one: it can be learnt
LOAD = 0.9  # accelerator-seconds that are asked for over those that there are
DAY = 86_400
NIGHT = 0.5  # of the rate by day
SEED = 20_200_901


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, action="append", help="1,000,000 unless given; more than once for several")
    parser.add_argument("--nodes", type=int, default=10_000)
    parser.add_argument("--load", type=float, default=LOAD, help="asked for over what there is; past 1 the queue grows")
    parser.add_argument("--policy", choices=list(PRESETS), action="append", help="default and fifo unless given")
    given = parser.parse_args()
    runs = []
    for jobs in given.jobs or [1_000_000]:
        with tempfile.TemporaryDirectory() as folder:
            path = generate(Path(folder), jobs, given.nodes, given.load)
            runs += [measure(path, policy, given.nodes) for policy in given.policy or ["default", "fifo"]]
    write("sched_million", {"seed": SEED, "load": given.load, "queues": QUEUES, "users": QUEUES * USERS, "runs": runs})


def measure(path: Path, policy: str, nodes: int) -> dict[str, Any]:
    work = load(path)
    timed = play(work, policy, "shared")
    count = len(work.jobs)
    print(f"{policy}: {count:,} jobs on {nodes:,} nodes in {timed.wall / 60:.1f} minutes,"
          f" {1e6 * timed.cpu / count:.0f} us of the processor a job")  # fmt: skip
    return {
        "policy": policy,
        "jobs": count,
        "nodes": nodes,
        "minutes": round(timed.wall / 60, 2),
        "cpu_us_per_job": round(1e6 * timed.cpu / count, 1),
        "cpu_us_per_tick": round(1e6 * timed.cpu / timed.summary.rounds, 1),
        "most_queued": max(sample.queued for sample in timed.result.samples),
        "utilisation": round(timed.summary.utilisation or 0.0, 3),
        "memory_gib": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20, 2),
        **timed.figures(),
    }


def generate(folder: Path, jobs: int, nodes: int, load: float = LOAD) -> Path:
    """The trace, with its cluster beside it."""
    dice = random.Random(SEED)
    rows = list(_work(dice, jobs))
    asked = sum(duration * gpus for _, _, duration, gpus in rows)
    times = _times(dice, jobs, asked / (nodes * PER_NODE * load))
    path = folder / "trace.csv.gz"
    with gzip.open(path, "wt", compresslevel=1, newline="") as file:
        writer = csv.writer(file)
        writer.writerow(COLUMNS)
        for number, ((user, queue, duration, gpus), at) in enumerate(zip(rows, times, strict=True), 1):
            writer.writerow((number, user, queue, at, duration, gpus, gpus, -(-gpus // PER_NODE), "V100", "completed"))
    shares = _falling(QUEUES)
    quotas = {f"q{queue}": max(1, int(nodes * share / sum(shares))) for queue, share in enumerate(shares)}
    quotas["q0"] += nodes - sum(quotas.values())  # what rounding left
    cluster = {"virtual_cluster_nodes": quotas, "gpus_per_node": PER_NODE, "gpu_type": "V100"}
    path.with_name("trace.json").write_text(json.dumps(cluster))
    return path


def _work(dice: random.Random, jobs: int) -> Iterator[tuple[str, str, int, int]]:
    """User, queue, seconds and accelerators of each job."""
    habits = {(queue, user): dice.gauss(0.0, SPREAD * HABIT) for queue in range(QUEUES) for user in range(USERS)}
    own = SPREAD * (1 - HABIT**2) ** 0.5
    queues = dice.choices(range(QUEUES), _falling(QUEUES), k=jobs)
    users = dice.choices(range(USERS), _falling(USERS), k=jobs)
    sizes = dice.choices(list(SIZES), list(SIZES.values()), k=jobs)
    for queue, user, size in zip(queues, users, sizes, strict=True):
        seconds = MEDIAN * size**WIDER * exp(habits[queue, user] + dice.gauss(0.0, own))
        yield f"u{queue}-{user}", f"q{queue}", int(min(max(seconds, 1.0), LONGEST)), size


def _times(dice: random.Random, jobs: int, span: float) -> list[int]:
    """Whole seconds of the submissions, in order; from 20 to 8 o'clock there are fewer."""
    found: list[int] = []
    while len(found) < jobs:
        at = dice.uniform(0.0, span)
        if 8 <= at % DAY / 3600 < 20 or dice.random() < NIGHT:
            found.append(int(at))
    return sorted(found)


def _falling(count: int) -> list[float]:
    """Shares that fall as one over the place."""
    return [1 / place for place in range(1, count + 1)]


if __name__ == "__main__":
    main()
