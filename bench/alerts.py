"""Alert rules on a large cluster: CPU time of the default rules, and how long a look takes.

10,000 nodes, 1,000 running jobs of 8 ranks and 9,000 waiting ones. Every rank reports five figures of its device and
rank 0 its loss every 10 seconds. The goals: at most a tenth of a core, and looks that take less than 2 seconds.
"""

from __future__ import annotations

import argparse
import random
import time
from array import array
from typing import Any

from _machine import write
from muster.control.alerts import EVERY, Alerts
from muster.control.metric_tap import MetricTap
from muster.control.receivers import Receivers
from muster.core.attempt_events import AttemptPlanned, AttemptRunning, WorkerRunning
from muster.core.entities.node import NodeJoined
from muster.core.event import Event
from muster.core.job_events import JobSubmitted
from muster.core.parse import parse_job
from muster.core.resources import Resources
from muster.core.seat import Seat
from muster.store.base import Column
from muster.store.direct import DirectCommit
from muster.store.registry import open_store

PERIOD = 10.0  # seconds between two reports of a rank
RANKS = 8
FIGURES = ("gpu", "gpu_memory", "gpu_power", "gpu_temperature", "gpu_clock")


class Clock:
    time = 1_000_000.0

    def now(self) -> float:
        return self.time


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=10_000)
    parser.add_argument("--running", type=int, default=1_000)
    parser.add_argument("--waiting", type=int, default=9_000)
    parser.add_argument("--minutes", type=float, default=3)
    args = parser.parse_args()
    store: Any = open_store("memory:")
    _fill(store, args.nodes, args.running, args.waiting)
    clock, tap = Clock(), MetricTap()
    alerts = Alerts(store, DirectCommit(store, lambda events: None), clock, tap, Receivers({}), lambda: True, dict)
    looks: list[float] = []
    spent = 0.0
    rng = random.Random(5)
    for number in range(int(args.minutes * 60 / EVERY)):
        clock.time += EVERY
        began = time.process_time()
        for job in range(number % 2, args.running, 2):  # half of the jobs between two looks
            _report(tap, job, clock.time, rng)
        fed = time.process_time()
        alerts.look()
        looks.append(time.process_time() - fed)
        spent += time.process_time() - began
    looks.sort()
    result: dict[str, Any] = {
        "nodes": args.nodes,
        "running": args.running,
        "waiting": args.waiting,
        "points_per_second": args.running * (RANKS * len(FIGURES) + 1) / PERIOD,
        "look_median_s": round(looks[len(looks) // 2], 3),
        "look_p99_s": round(looks[int(len(looks) * 0.99)], 3),
        "of_a_core": round(sum(looks) / (len(looks) * EVERY), 4),
        "of_a_core_with_the_tap": round(spent / (len(looks) * EVERY), 4),
        "alerts": len(store.state().others.get("alert", {})),
    }
    print(result)
    write("alerts", result)


def _report(tap: MetricTap, job: int, now: float, rng: random.Random) -> None:
    use = rng.random() if job % 10 == 0 else 0.95
    for rank in range(RANKS):
        columns = {f"system/{name}": _column(now, use) for name in FIGURES}
        if rank == 0:
            columns["loss"] = _column(now, 2.0)
        tap.publish(f"job-{job}", 1, rank, columns)


def _column(now: float, value: float) -> Column:
    return Column(array("q", [int(now)]), array("d", [now]), array("d", [value]))


def _fill(store: Any, nodes: int, running: int, waiting: int) -> None:
    total = Resources(64_000, 2**40, RANKS, "H100")
    store.append([Event(NodeJoined(f"n{number}", "main", total, {}), 1.0) for number in range(nodes)])
    spec = parse_job({"name": "job", "run": "true", "accelerators": "H100:8"})
    for start in range(0, running + waiting, 1000):
        events = []
        for number in range(start, min(start + 1000, running + waiting)):
            job = f"job-{number}"
            submitted = JobSubmitted(number + 1, "default", "ada", spec)
            events.append(Event(submitted, 999_000.0, "ada", "default", job))
            if number < running:
                planned = AttemptPlanned((Seat(f"n{number}", tuple(range(RANKS))),))
                for data in (planned, WorkerRunning(0), AttemptRunning()):
                    events.append(Event(data, 999_001.0, "system", "default", job, 1))
        store.append(events)


if __name__ == "__main__":
    main()
