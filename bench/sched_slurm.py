"""How fast gangs get their nodes, beside a real Slurm controller: 1,000 and 10,000 nodes of 8 GPUs in racks of 32."""

from __future__ import annotations

import math
import os
import random
import statistics
import tempfile
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

from _machine import write
from _slurm import MAX_ARRAY, MAX_JOBS, Cycle, SlurmController, wait_until

GPUS, RACK = 8, 32
SIZES = (1, 2, 4, 8, 16)  # nodes of a gang, all of their GPUs
EACH = 32  # gangs of each size: 160 gangs on 992 nodes
ROUNDS = {1_000: 5, 10_000: 3}  # by nodes, each with a new controller
FILLERS = 10  # wide gangs that fill the cluster before the backlog, one to ten hours long
HEAD = 100  # one-node gangs at the head of the backlog
ARRAYS, TASKS = 100, 1_000  # the rest of the backlog
CYCLES, WATCH_S = 2, 60.0  # backfill cycles to see, and for how long at most
CHANGES = 15
# As shipped, a cycle that an event wakes stops after 100 jobs or 2 s; the rest waits for the next, up to 60 s.
SCHEDULER = (
    "default_queue_depth=10000,max_sched_time=40,batch_sched_delay=0,sched_interval=2,bf_interval=10,bf_continue"
)
NOTES = [
    "the same: whole-gang allocation of 8 GPUs a node, racks, backfill that holds a place for the first in the queue",
    "not the same: without slurmdbd Slurm refuses fair-share and age weights, so it orders by submission alone",
    "in Slurm's favour: its backlog is arrays, of which each is one record until a task starts",
    "against Slurm: a reaction to a change includes the end of a real process on a real node",
]


def main() -> None:
    result: dict[str, Any] = {
        "sizes": SIZES,
        "gangs": EACH * len(SIZES),
        "notes": NOTES,
        "load_before": os.getloadavg(),
    }
    for nodes in ROUNDS:
        result[f"nodes_{nodes}"] = {"slurm": slurm_side(nodes)}
    result["load_after"] = os.getloadavg()
    write("sched_slurm", result)


def slurm_side(nodes: int) -> dict[str, Any]:
    rounds = []
    for _ in range(ROUNDS[nodes]):
        with tempfile.TemporaryDirectory() as folder, _controller(folder, nodes) as slurm:
            rounds.append(_start_gangs(slurm))
    with tempfile.TemporaryDirectory() as folder, _controller(folder, nodes) as slurm:
        return {
            "version": slurm.version(),
            "settings": {"SchedulerParameters": SCHEDULER, "MaxArraySize": MAX_ARRAY, "MaxJobCount": MAX_JOBS},
            "free_cluster": {key: _spread([value for each in rounds for value in each[key]]) for key in rounds[0]},
            "backlog": _watch_backlog(slurm),
            "one_change": _change(slurm),
        }


def _controller(folder: str, nodes: int) -> SlurmController:
    return SlurmController(Path(folder) / "slurm", nodes, GPUS, RACK, SCHEDULER)


def _start_gangs(slurm: SlurmController) -> dict[str, list[float]]:
    """From the moment when gangs may start to the moment when the last of them has its nodes, on a free cluster."""
    slurm.close_queue()
    count = len(slurm.submit_many([(1, size, GPUS, 60) for _ in range(EACH) for size in SIZES]))
    mark, spent, begun = slurm.mark(), slurm.cpu_seconds(), time.time()
    slurm.open_queue()
    at = [start.at for start in slurm.wait_for_starts(mark, count, 240.0)]
    assert len(slurm.running()) == count, "Slurm logged more starts than it has jobs with nodes"
    return {
        "release_to_all_s": [at[-1] - begun],
        "gangs_per_s_from_release": [count / (at[-1] - begun)],
        "gangs_per_s_once_begun": [(count - 1) / (at[-1] - at[0])],
        "ms_between_starts": [(after - before) * 1000 for before, after in pairwise(at)],
        "gangs_per_controller_cpu_s": [count / (slurm.cpu_seconds() - spent)],
    }


def _watch_backlog(slurm: SlurmController) -> dict[str, Any]:
    """The cycles of both schedulers with every node taken and the backlog behind them."""
    slurm.close_queue()
    slurm.submit_many([(1, slurm.nodes // FILLERS, GPUS, 60 * hours) for hours in range(1, FILLERS + 1)])
    slurm.submit_array(HEAD, 1, GPUS)
    begun = time.time()
    slurm.submit_many([(TASKS, SIZES[i % len(SIZES)], GPUS, 60 + i) for i in range(ARRAYS)])
    submitted, mark = time.time() - begun, slurm.mark()
    slurm.open_queue()
    slurm.wait_for_starts(mark, FILLERS, 60.0)
    slurm.reset()
    main, backfill = _cycles(slurm)
    return {
        "queued": HEAD + ARRAYS * TASKS,
        "records": 1 + ARRAYS,
        "submit_arrays_s": round(submitted, 2),
        "main_cycle_ms": _spread([cycle.last_ms for cycle in main]),
        "backfill_cycle_ms": _spread([cycle.last_ms for cycle in backfill]),
        "backfill_depth": _spread([cycle.depth for cycle in backfill]),
        "backfill_ms_per_job_tried": _spread([cycle.last_ms / cycle.depth for cycle in backfill]),
    }


def _cycles(slurm: SlurmController) -> tuple[list[Cycle], list[Cycle]]:
    main: dict[int, Cycle] = {}
    backfill: dict[int, Cycle] = {}
    deadline = time.monotonic() + WATCH_S
    while len(backfill) < CYCLES and time.monotonic() < deadline:
        for seen, cycle in zip((main, backfill), slurm.sdiag(), strict=True):
            if cycle.count:
                seen.setdefault(cycle.count, cycle)
        time.sleep(0.2)
    return list(main.values()), list(backfill.values())


def _change(slurm: SlurmController) -> dict[str, Any]:
    """One running gang of the full cluster is cancelled, until the first in the queue has its node; at odd moments, so
    that some fall into a backfill cycle."""
    slurm.join_real_node()
    asked, freed = [], []
    dice = random.Random(7)
    for _ in range(CHANGES):
        wait_until(slurm.on_real_node, "a gang runs on the real node", 60.0)
        time.sleep(dice.uniform(0.2, 2.0))
        mark, begun = slurm.mark(), time.time()
        slurm.cancel(*slurm.on_real_node())
        at = slurm.wait_for_starts(mark, 1, 60.0)[0].at
        asked.append((at - begun) * 1000)
        freed.append(max(0.0, at - slurm.last_freed()) * 1000)
    return {"cancel_to_next_ms": _spread(asked), "node_free_to_next_ms": _spread(freed)}


def _spread(values: list[float] | list[int]) -> dict[str, float]:
    if not values:
        return {"samples": 0}
    ordered = sorted(values)
    return {
        "median": round(statistics.median(ordered), 3),
        "min": round(ordered[0], 3),
        "p90": round(ordered[math.ceil(0.9 * len(ordered)) - 1], 3),
        "max": round(ordered[-1], 3),
        "samples": len(ordered),
    }


if __name__ == "__main__":
    main()
