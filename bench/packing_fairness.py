"""Does anybody wait longer because single workers are placed by what typical work could use?

Made-up jobs of several classes, with CPUs, memory and parts of accelerators, are replayed under several policies with
the default placement, and with the one before it (the node with the fewest free accelerators that fits). The 99th
percentile of the waits of each class and of each queue, averaged over several traces, is compared; the goal is that
none grows by more than a tenth.

    python bench/packing_fairness.py [--policy NAME ...] [--jobs N] [--seeds N] [--load PART]
"""

from __future__ import annotations

import argparse
import random
import time
from collections import defaultdict
from statistics import mean
from unittest.mock import patch

from _machine import write
from muster.core.resources import WHOLE
from muster.sched.capacity import gather
from muster.sched.capacity.single import Order, fullest, least_lost
from muster.sim.model import Cluster, PoolShape, Setup, TraceJob
from muster.sim.presets import PRESETS
from muster.sim.run import replay

GIB = 2**30
NODES, CPUS, DEVICES = 24, 96.0, 8
GOAL = 1.1  # times the wait before
NOISE = 60.0  # seconds: a shorter difference is nobody's concern
# Class: frequency, nodes, accelerators, thousandths of each, CPUs, GiB, mean seconds.
CLASSES = {
    "part": (0.30, 1, 1, 400, 4.0, 16, 2_400),
    "one": (0.28, 1, 1, WHOLE, 8.0, 32, 7_200),
    "many-cpus": (0.10, 1, 1, WHOLE, 22.0, 64, 5_400),
    "four": (0.08, 1, 4, WHOLE, 40.0, 160, 10_800),
    "whole-node": (0.04, 1, 8, WHOLE, 88.0, 600, 10_800),
    "gang": (0.02, 2, 8, WHOLE, 80.0, 600, 10_800),
    "cpus-alone": (0.18, 1, 0, WHOLE, 16.0, 48, 3_600),
}
QUEUES = ("vision", "language", "speech")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--policy", action="append", choices=list(PRESETS), help="fifo, easy and default unless given")
    parser.add_argument("--jobs", type=int, default=1_000)
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--load", type=float, default=0.8)
    given = parser.parse_args()
    results: dict[str, object] = {}
    for preset in given.policy or ("fifo", "easy", "default"):
        before, after = defaultdict[str, list[float]](list), defaultdict[str, list[float]](list)
        spent = [0.0, 0.0]
        for seed in range(given.seeds):
            jobs = trace(random.Random(seed), given.jobs, given.load)
            for at, (found, order) in enumerate(((before, fullest), (after, least_lost))):
                begun = time.process_time()
                for name, wait in waits(jobs, preset, order).items():
                    found[name].append(wait)
                spent[at] += time.process_time() - begun
        rows = {name: (round(mean(before[name])), round(mean(after[name]))) for name in before}
        longer = [name for name, (old, new) in rows.items() if new > max(old * GOAL, old + NOISE)]
        results[preset] = {"p99_wait_s": rows, "longer_by_a_tenth": longer, "cpu_s": [round(one, 1) for one in spent]}
        print(preset, results[preset], flush=True)
    said = {"jobs": given.jobs, "seeds": given.seeds, "load": given.load, "goal": GOAL, "pairs": "before, after"}
    write("packing_fairness", {**said, "measured": results})


def trace(draw: random.Random, count: int, load: float) -> list[TraceJob]:
    """Jobs at random times, such that they ask for this part of the accelerators in the mean."""
    work = sum(
        often * nodes * each * share / WHOLE * long for often, nodes, each, share, _, _, long in CLASSES.values()
    )
    every = work / (NODES * DEVICES * load)
    found, at = [], 0.0
    for number in range(count):
        at += draw.expovariate(1 / every)
        (name,) = draw.choices(list(CLASSES), [one[0] for one in CLASSES.values()])
        _, nodes, each, share, cpus, memory, long = CLASSES[name]
        duration = max(60.0, draw.lognormvariate(0.0, 1.0) * long / 1.65)
        found.append(
            TraceJob(
                str(number), at, duration, nodes, each, cpus=cpus, memory=memory * GIB, user=f"u{draw.randrange(12)}",
                queue=draw.choice(QUEUES), name=name, share=share,
            )
        )  # fmt: skip
    return found


def waits(jobs: list[TraceJob], preset: str, order: Order) -> dict[str, float]:
    """The 99th percentile of the waits of each class and each queue, in seconds."""
    chosen = PRESETS.get(preset)
    pool = PoolShape("main", NODES, DEVICES, cpus=CPUS, memory=768 * GIB)
    with patch.object(gather, "least_lost", order):
        result = replay(jobs, Setup(preset, chosen.rules, Cluster((pool,)), exact=chosen.exact))
    by_name = defaultdict[str, list[float]](list)
    for one in result.jobs:
        if one.finished is not None:
            for name in (one.job.name, one.job.queue):
                by_name[name].append(one.queueing)
    return {name: sorted(times)[int(0.99 * (len(times) - 1))] for name, times in sorted(by_name.items())}


if __name__ == "__main__":
    main()
