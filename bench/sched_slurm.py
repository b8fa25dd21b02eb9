"""How fast gangs get their nodes, beside a real Slurm controller: 1,000 and 10,000 nodes of 8 GPUs in racks of 32.

Both sides are whole controllers over nodes that are not there, with the same gangs, racks and backlog. Where Slurm
can't be had, Muster's side is measured alone.
"""

from __future__ import annotations

import argparse
import gc
import json
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
from _muster import MusterController
from _slurm import MAX_ARRAY, MAX_JOBS, Cycle, SlurmController, unavailable, wait_until

GPUS, RACK = 8, 32
SIZES = (1, 2, 4, 8, 16)  # nodes of a gang, all of their GPUs
EACH = 32  # gangs of each size: 160 gangs on 992 nodes
ROUNDS = {1_000: 5, 10_000: 3}  # by nodes, each with a new controller
FILLERS = 10  # wide gangs that fill the cluster before the backlog, one to ten hours long
HEAD = 100  # one-node gangs at the head of the backlog
ARRAYS, TASKS = 100, 1_000  # the rest of the backlog
CYCLES, WATCH_S = 2, 60.0  # backfill cycles to see, and for how long at most
CHANGES = 15
MUSTER_CHANGES = 200
# As shipped, a cycle that an event wakes stops after 100 jobs or 2 s; the rest waits for the next, up to 60 s.
SCHEDULER = (
    "default_queue_depth=10000,max_sched_time=40,batch_sched_delay=0,sched_interval=2,bf_interval=10,bf_continue"
)
NOTES = [
    "the same: whole-gang allocation of 8 GPUs a node, racks, backfill that holds a place for the first in the queue",
    "not the same: without slurmdbd Slurm refuses fair-share and age weights, so it orders by submission alone",
    "in Slurm's favour: its backlog is arrays, of which each is one record until a task starts; Muster's are jobs",
    "in Slurm's favour: a round from nothing is what Muster does once, when it starts; later rounds cost what changed",
    "in Muster's favour: a backfill cycle of Slurm's counts the pauses in which it lets other work in",
    "in Muster's favour: its log is kept in memory here, while Slurm saves its state to files in the background",
    "against Slurm: a reaction to a change includes the end of a real process on a real node",
]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, choices=list(ROUNDS), action="append", help="these alone")
    parser.add_argument("--rounds", type=int, help="with so many new controllers, in place of 5 and 3")
    given = parser.parse_args()
    why = unavailable()
    if why:
        print(f"Slurm is not measured: {why}")
    result: dict[str, Any] = {
        "sizes": SIZES,
        "gangs": EACH * len(SIZES),
        "notes": NOTES,
        "slurm": why or "measured",
        "load_before": os.getloadavg(),
    }
    for nodes in given.nodes or ROUNDS:
        rounds = given.rounds or ROUNDS[nodes]
        sides = {"muster": muster_side(nodes, rounds)}
        if not why:
            sides["slurm"] = slurm_side(nodes, rounds)
            sides["ratios"] = ratios(sides["muster"], sides["slurm"])
            print(f"{nodes:,} nodes:", "; ".join(f"{name} {value:,}" for name, value in sides["ratios"].items()))
        result[f"nodes_{nodes}"] = sides
    result["load_after"] = os.getloadavg()
    if why:
        print(json.dumps(result, indent=2))  # what was measured with Slurm before stays in results/
    else:
        write("sched_slurm", result)


def ratios(muster: dict[str, Any], slurm: dict[str, Any]) -> dict[str, float]:
    """How many times as fast Muster is, or as slow where less than 1."""
    free, gangs = "free_cluster", "gangs_per_controller_cpu_s"
    cycle, change = slurm["backlog"], muster["one_change"]
    compared = {
        "gangs_per_cpu_s": muster[free][gangs]["median"] / slurm[free][gangs]["median"],
        "from_nothing_against_main_cycle": _ratio(cycle["main_cycle_ms"], muster["backlog"]["from_nothing_ms"]),
        "from_nothing_against_backfill_cycle": _ratio(cycle["backfill_cycle_ms"], muster["backlog"]["from_nothing_ms"]),
        "one_more_job_against_main_cycle": _ratio(cycle["main_cycle_ms"], muster["backlog"]["one_more_job_ms"]),
        "free_to_next": _ratio(slurm["one_change"]["node_free_to_next_ms"], change["free_to_next_ms"]),
    }
    return {name: round(value, 2) for name, value in compared.items() if value is not None}


def _ratio(slurm: dict[str, float], muster: dict[str, float]) -> Any:
    return slurm["median"] / muster["median"] if slurm["samples"] else None


def muster_side(nodes: int, rounds: int) -> dict[str, Any]:
    found = [_start_muster_gangs(nodes) for _ in range(rounds)]
    muster = MusterController(nodes, GPUS, RACK)
    muster.open()
    return {
        "free_cluster": {key: _spread([one[key] for one in found]) for key in found[0]},
        "backlog": _muster_backlog(muster),
        "one_change": _muster_change(muster),
    }


def _start_muster_gangs(nodes: int) -> dict[str, float]:
    muster = MusterController(nodes, GPUS, RACK)
    muster.open()
    total = muster.submit_many((1, size, GPUS, 60) for _ in range(EACH) for size in SIZES)
    gc.collect()
    wall, cpu = time.perf_counter(), time.process_time()
    muster.settle()
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    assert len(muster.engine.launches) == total, "not every gang has its nodes"
    return {
        "release_to_all_s": wall,
        "gangs_per_s_from_release": total / wall,
        "gangs_per_controller_cpu_s": total / cpu,
    }


def _muster_backlog(muster: MusterController) -> dict[str, Any]:
    """A round with every node taken and the backlog behind them: from nothing, and after one more job."""
    muster.submit_many((1, muster.nodes // FILLERS, GPUS, 60 * hours) for hours in range(1, FILLERS + 1))
    begun = time.process_time()
    queued = muster.submit_many([(HEAD, 1, GPUS, 60)])
    queued += muster.submit_many((TASKS, SIZES[i % len(SIZES)], GPUS, 60 + i) for i in range(ARRAYS))
    submitted = time.process_time() - begun
    muster.settle()
    assert len(muster.engine.launches) == FILLERS, "the cluster is not filled as it was meant to be"
    gc.collect()
    gc.freeze()
    whole = [muster.fresh_round() * 1000 for _ in range(3)]
    more = []
    for _ in range(MUSTER_CHANGES):
        muster.now += 1.0
        muster.submit_many([(1, 1, GPUS, 60)])
        begun = time.perf_counter()
        muster.settle()
        more.append((time.perf_counter() - begun) * 1000)
    return {
        "queued": queued,
        "submit_cpu_s": round(submitted, 2),
        "from_nothing_ms": _spread(whole),
        "one_more_job_ms": _spread(more),
    }


def _muster_change(muster: MusterController) -> dict[str, Any]:
    """One gang of the full cluster ends, until the first in the queue has its node."""
    muster.join_node()
    wall, cpu = [], []
    for _ in range(min(MUSTER_CHANGES, HEAD - 1)):
        muster.now += 1.0
        last, _ = muster.engine.launches[-1]
        before, begun, spent = len(muster.engine.launches), time.perf_counter(), time.process_time()
        muster.end(last)
        while len(muster.engine.launches) == before:
            muster.controller.tick()
        wall.append((time.perf_counter() - begun) * 1000)
        muster.settle()
        cpu.append((time.process_time() - spent) * 1000)
    return {"free_to_next_ms": _spread(wall), "cpu_ms": _spread(cpu)}


def slurm_side(nodes: int, rounds: int) -> dict[str, Any]:
    found = []
    for _ in range(rounds):
        with tempfile.TemporaryDirectory() as folder, _controller(folder, nodes) as slurm:
            found.append(_start_gangs(slurm))
    with tempfile.TemporaryDirectory() as folder, _controller(folder, nodes) as slurm:
        return {
            "version": slurm.version(),
            "settings": {"SchedulerParameters": SCHEDULER, "MaxArraySize": MAX_ARRAY, "MaxJobCount": MAX_JOBS},
            "free_cluster": {key: _spread([value for each in found for value in each[key]]) for key in found[0]},
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
