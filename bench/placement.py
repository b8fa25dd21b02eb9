"""What placing costs, in microseconds of processor time: a gang among 10,000 nodes of 8 accelerators in racks of 32."""

from __future__ import annotations

import gc
import random
import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from _machine import write
from muster.core.entities import Node
from muster.core.resources import Resources
from muster.core.rules import PoolRules
from muster.core.seat import Seat
from muster.sched.capacity.free import Free
from muster.sched.place import GangRequest
from muster.sched.placements import PLACEMENTS

NODES, DEVICES, RACK, ZONE = 10_000, 8, 32, 2_500  # the last two in nodes
TOTAL = Resources(96_000, 10**12, DEVICES, "H100", accelerator_memory=80 * 10**9)
EACH = Resources(8_000, 64 * 10**9, 1, "H100")  # asked for with one accelerator
RULES = PoolRules()
GANGS = {
    "1 accelerator": GangRequest(EACH, 1, ("main",)),
    "a quarter of one": GangRequest(replace(EACH, share=250), 1, ("main",)),
    "1 node": GangRequest(EACH * 8, 1, ("main",)),
    "4 nodes": GangRequest(EACH * 8, 4, ("main",)),
    "16 nodes, prefer rack": GangRequest(EACH * 8, 16, ("main",), prefer="rack"),
    "16 nodes, require rack": GangRequest(EACH * 8, 16, ("main",), require="rack"),
    "64 nodes": GangRequest(EACH * 8, 64, ("main",)),
    "33 nodes, require rack: none": GangRequest(EACH * 8, 33, ("main",), require="rack"),
}


def main() -> None:
    nodes = cluster()
    free = Free()
    gc.disable()  # a collection that happens to fall into one of the loops would say nothing of that loop
    filling = timed(lambda node: free.set(node, RULES), nodes)
    results: dict[str, object] = {"set, new": filling, "set, unchanged": timed(lambda n: free.set(n, RULES), nodes)}
    seats = [
        Seat(node.name, (device,)) for node in nodes for device in range(DEVICES) if node.free_devices >> device & 1
    ]
    picked = random.Random(1).sample(seats, 5_000)
    results["take"] = timed(lambda seat: free.take((seat,), EACH), picked)
    results["give"] = timed(lambda seat: free.give((seat,), EACH), picked)
    free.undo(0)
    for name, gang in GANGS.items():
        results[f"could, {name}"] = timed(free.could, [gang] * 2_000)
    for placement in PLACEMENTS:
        near = frozenset(["n00100", "n04000"])
        for name, gang in GANGS.items():
            results[f"{placement}, {name}"] = placed(free, replace(gang, near=near), placement)
    write("placement", {"unit": "microseconds of processor time, median", "nodes": NODES, "measured": results})


def cluster() -> list[Node]:
    """Of three racks one is whole; in the others a node in three is full, one whole and one used in part."""
    draw, nodes = random.Random(0), []
    for i in range(NODES):
        labels = {"zone": f"z{i // ZONE}", "rack": f"r{i // RACK:03}"}
        node = Node(f"n{i:05}", "main", TOTAL, labels)
        node.clear()
        used = draw.choice([0, 8, draw.randrange(8)]) if i // RACK % 3 else 0
        if used:
            node.take(Seat(node.name, tuple(range(used))), EACH * used)
        nodes.append(node)
    return nodes


def placed(free: Free, gang: GangRequest, placement: str, times: int = 20) -> float:
    """Of each of several gangs in a row, that are then taken: the index has changed each time."""
    place, spent, mark = PLACEMENTS.get(placement).place, [], free.mark()
    for _ in range(times):
        begun = time.thread_time()
        seats = place(gang, free)
        spent.append(time.thread_time() - begun)
        if seats is not None:
            free.take(seats, gang.ask)
    free.undo(mark)
    return round(statistics.median(spent) * 1e6, 2)


def timed(call: Callable[[Any], object], over: list[Any]) -> float:
    begun = time.thread_time()
    for item in over:
        call(item)
    return round((time.thread_time() - begun) / len(over) * 1e6, 2)


if __name__ == "__main__":
    main()
