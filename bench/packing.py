"""How much of a cluster is allocated by the default placement and by others, on several mixes of requests.

Requests are drawn until they ask for 130 % of the accelerators; each is placed where the placement says, or dropped if
it fits nowhere, and none leaves. `pack` learns what is typical from the requests themselves, as they come. For
comparison: `fullest` (the node with the fewest free accelerators: what `pack` did before), a random node, best fit over
CPUs, memory and accelerators, and descent of the fragmentation gradient (Weng et al., ATC '23), which is given the
frequencies of the requests.

    python bench/packing.py [--seeds N] [--nodes FILE --pods FILE] [--only PLACEMENT ...]

Then `pack` alone fills eight times the nodes, for what a placement costs on some 10,000 nodes. The two files are a
published trace in its own columns, which is measured beside the mixes that are made up.
"""

from __future__ import annotations

import argparse
import csv
import gc
import random
import statistics
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from _gradient import Gradient
from _machine import write
from _mixes import MIXES, Mix
from muster.core.entities import Node
from muster.core.entities.demand import learn_demand, typical_work
from muster.core.job import Job
from muster.core.resources import WHOLE, Resources
from muster.core.rules import PoolRules
from muster.core.seat import Seat
from muster.core.spec import JobSpec
from muster.core.state_data import Changes, State
from muster.sched.capacity.free import Free
from muster.sched.capacity.single import fullest, single
from muster.sched.capacity.slot import Slot
from muster.sched.capacity.view import View
from muster.sched.place import GangRequest
from muster.sched.placements import PLACEMENTS

ASKED = 1.3
BLOCK = 250  # requests
Choose = Callable[[GangRequest, Free], tuple[Seat, ...] | None]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--nodes", type=Path)
    parser.add_argument("--pods", type=Path)
    parser.add_argument("--only", nargs="*", default=[])
    options = parser.parse_args()
    mixes = dict(MIXES)
    if options.nodes and options.pods:
        mixes["published"] = lambda draw: published(options.nodes, options.pods)
    results: dict[str, object] = {}
    for name, make in mixes.items():
        found: dict[str, list[tuple[float, float, float]]] = {}
        for seed in range(options.seeds):
            for placement in options.only or CHOICES:
                mix = make(random.Random(seed))
                found.setdefault(placement, []).append(filled(mix, placement, seed))
        found["pack, 8 times the nodes"] = [filled(enlarged(make(random.Random(0))), "pack", 0)]
        for placement, runs in found.items():
            allocated, mean, late = (statistics.mean(run[i] for run in runs) for i in range(3))
            results[f"{name}, {placement}"] = {
                "allocated_percent": round(allocated, 2), "lowest_percent": round(min(run[0] for run in runs), 2),
                "microseconds": round(mean, 1), "microseconds_slowest_block": round(late, 1),
            }  # fmt: skip
            print(f"{name:10} {placement:23} {allocated:6.2f} %  {mean:7.1f} us, slowest block {late:8.1f}", flush=True)
    write("packing", {"asked": ASKED, "seeds": options.seeds, "measured": results})


def filled(mix: Mix, placement: str, seed: int) -> tuple[float, float, float]:
    """Percent of the accelerators that are allocated at the end; microseconds of processor time for a request, placed
    or not, with what is learnt of it and what keeps the index up to date: the mean, and that of the slowest block."""
    draw, free, rules = random.Random(1000 + seed), Free(), PoolRules()
    for node in mix.nodes:
        free.set(node, rules)
    choose = CHOICES[placement](mix, draw)
    total = sum(node.total.accelerators for node in mix.nodes)
    asked = held = 0.0
    spent, state, number = [0.0], State(), 0
    spec = JobSpec(name="job", run="true")
    gc.collect()
    gc.disable()
    begun = time.thread_time()  # reading it takes longer than a placement on some machines, so blocks are timed
    while asked < ASKED * total:
        if number % BLOCK == 0 and number:
            now = time.thread_time()
            spent.append(now - begun)
            begun = now
        ask = draw.choice(mix.requests)
        asked += ask.weight
        number += 1
        if placement == "pack":
            job = Job("job", number, "p", "q", "u", spec, float(number), since=0.0, ask=ask)
            learn_demand(state, job, float(number), Changes())
            free.set_typical(typical_work(state))
        seats = choose(GangRequest(ask, 1, ("main",)), free)
        if seats is not None:
            free.take(seats, ask)
            held += ask.weight
            free.settle()
    gc.enable()
    return 100 * held / total, 1e6 * statistics.mean(spent[1:]) / BLOCK, 1e6 * max(spent) / BLOCK


def enlarged(mix: Mix, times: int = 8) -> Mix:
    nodes = [
        replace(node, name=f"{node.name}-{copy}", parts={}, jobs=set()) for node in mix.nodes for copy in range(times)
    ]
    return Mix(nodes, mix.requests)


def published(nodes: Path, pods: Path) -> Mix:
    """The columns of `openb_node_list_gpu_node.csv` and `openb_pod_list_default.csv`."""
    mib = 2**20
    with nodes.open() as file:
        there = [
            Node(
                row["sn"], "main",
                Resources(int(row["cpu_milli"]), int(row["memory_mib"]) * mib, int(row["gpu"]), row["model"].upper()),
            )
            for row in csv.DictReader(file)
        ]  # fmt: skip
    with pods.open() as file:
        asks = [
            Resources(
                int(row["cpu_milli"]), int(row["memory_mib"]) * mib, int(row["num_gpu"]),
                "GPU" if int(row["num_gpu"]) else "",
                int(row["gpu_milli"]) if row["num_gpu"] == "1" else WHOLE,
            )
            for row in csv.DictReader(file)
        ]  # fmt: skip
    for node in there:
        node.clear()
    return Mix(there, asks)


def _pack(mix: Mix, draw: random.Random) -> Choose:
    return PLACEMENTS.get("pack").place


def _fullest(mix: Mix, draw: random.Random) -> Choose:
    return lambda gang, free: single(gang, free, fullest)


def _random(mix: Mix, draw: random.Random) -> Choose:
    def order(view: View) -> Iterator[Slot]:
        slots = list(view.pool_index.slots.values())
        draw.shuffle(slots)
        return (slot for slot in slots if view.reaches(slot))

    return lambda gang, free: single(gang, free, order)


def _best_fit(mix: Mix, draw: random.Random) -> Choose:
    """The node on which the least is left, as the sum of the parts of the largest node's CPUs, memory and devices."""
    cpus, memory, devices = (
        max(getattr(node.total, name) for node in mix.nodes) for name in ("milli_cpus", "memory", "accelerators")
    )

    def order(view: View) -> Iterator[Slot]:
        slots = [slot for slot in view.pool_index.slots.values() if view.reaches(slot) and view.holds(slot)]
        left = lambda slot: slot.cpu / cpus + slot.memory / memory + slot.room / WHOLE / devices  # noqa: E731
        return iter([min(slots, key=left)] if slots else [])

    return lambda gang, free: single(gang, free, order)


def _gradient(mix: Mix, draw: random.Random) -> Choose:
    return Gradient(Counter(mix.requests)).place


CHOICES: dict[str, Callable[[Mix, random.Random], Choose]] = {
    "pack": _pack, "fullest": _fullest, "random": _random, "best fit": _best_fit, "gradient": _gradient,
}  # fmt: skip


if __name__ == "__main__":
    main()
