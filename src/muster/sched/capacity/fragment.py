"""Fragmentation: the fraction of the free accelerators that typical gangs could use."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from muster.core.entities import Node
from muster.core.resources import WHOLE, Resources

Shape = tuple[Resources, int]  # what each worker asks for, and how many workers
# What a node has and what is free of it: with its whole accelerators, and thousandths of each shared one.
Left = tuple[Resources, Resources, int, tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class Fragmentation:
    """`usable` is 1 where all free accelerators can be used, and also where nothing is free."""

    usable: float = 1.0  # fraction of the free accelerators, averaged over the typical gangs
    free: float = 0.0  # accelerators of healthy nodes
    pools: dict[str, Fragmentation] = field(default_factory=dict)


def fragmentation(nodes: Iterable[Node], typical: Sequence[Shape]) -> Fragmentation:
    """Each shape is weighted by how often it occurs in `typical`, in the pools whose accelerators suit it."""
    by_pool: dict[str, list[Node]] = {}
    for node in nodes:
        if node.total.accelerators:
            by_pool.setdefault(node.pool, []).append(node)
    shapes = Counter(shape for shape in typical if shape[0].accelerators)
    pools = {pool: _of_pool(there, shapes) for pool, there in sorted(by_pool.items())}
    free = sum(found.free for found in pools.values())
    usable = sum(found.usable * found.free for found in pools.values()) / free if free else 1.0
    return Fragmentation(usable, free, pools)


def _of_pool(nodes: list[Node], shapes: Counter[Shape]) -> Fragmentation:
    kinds = {node.total for node in nodes}
    # Nodes with the same resources left are counted once: of thousands, most are either idle or full.
    alike = Counter(
        (node.total, node.free, node.free_devices.bit_count(), tuple(sorted(node.parts.values())) if node.parts else ())
        for node in nodes
        if node.health == "healthy"
    )
    free = sum(count * (whole * WHOLE + sum(parts)) for (_, _, whole, parts), count in alike.items()) / WHOLE
    used = weights = 0.0
    for (ask, workers), times in shapes.items():
        if free and any(kind.suits(ask) for kind in kinds):
            room = Counter[int]()
            for left, count in alike.items():
                room[_workers(left, ask)] += count
            used += times * _gangs(room, workers) * workers * ask.weight / free
            weights += times
    return Fragmentation(used / weights if weights else 1.0, free)


def _workers(left: Left, ask: Resources) -> int:
    """How many workers, of different gangs, a node can hold at once."""
    total, free, whole, parts = left
    if not total.suits(ask):
        return 0
    if ask.share < WHOLE:
        most = whole * (WHOLE // ask.share) + sum(part // ask.share for part in parts)
    else:
        most = whole // ask.accelerators
    if ask.milli_cpus:
        most = min(most, free.milli_cpus // ask.milli_cpus)
    if ask.memory:
        most = min(most, free.memory // ask.memory)
    return max(most, 0)


def _gangs(room: Counter[int], workers: int) -> int:
    """The largest number of gangs that fit at once, each with its workers on different nodes.

    `room`: how many workers a node can hold → how many such nodes. A node holds at most one worker of a gang, so n
    gangs fit if the sum of min(room, n) over the nodes is at least n × workers.
    """
    low, high = 0, sum(there * count for there, count in room.items()) // workers
    while low < high:
        middle = (low + high + 1) // 2
        if sum([min(there, middle) * count for there, count in room.items()]) >= middle * workers:
            low = middle
        else:
            high = middle - 1
    return low
