"""Fragmentation: the fraction of the free accelerators that typical gangs could use."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from muster.core.entities import Node
from muster.core.resources import WHOLE, Resources

Shape = tuple[Resources, int]  # what each worker asks for, and how many workers


class Left(NamedTuple):
    """What is free on a node."""

    total: Resources  # of the node
    milli_cpus: int
    memory: int
    whole: int  # accelerators that are completely free
    parts: tuple[int, ...]  # thousandths left of each shared one


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
    kinds = {id(node.total): node.total for node in nodes}
    same: dict[Resources, int] = {}
    kind_of = {one: same.setdefault(total, one) for one, total in kinds.items()}
    # Nodes with the same resources left are counted once: of thousands, most are either idle or full. The key has
    # plain numbers, which are hashed and compared far faster than `Resources`.
    keys = [
        (
            kind_of[id(node.total)], node.free.milli_cpus, node.free.memory, node.free_devices.bit_count(),
            tuple(sorted(node.parts.values())) if node.parts else (),
        )
        for node in nodes
        if node.health == "healthy"
    ]  # fmt: skip
    alike = [
        (Left(kinds[kind], milli_cpus, memory, whole, parts), count)
        for (kind, milli_cpus, memory, whole, parts), count in Counter(keys).items()
    ]
    free = sum(count * (left.whole * WHOLE + sum(left.parts)) for left, count in alike) / WHOLE
    used = weights = 0.0
    for (ask, workers), times in shapes.items():
        if free and any(kind.suits(ask) for kind in same):
            room = Counter[int]()
            for left, count in alike:
                room[_workers(left, ask)] += count
            used += times * _gangs(room, workers) * workers * ask.weight / free
            weights += times
    return Fragmentation(used / weights if weights else 1.0, free)


def _workers(left: Left, ask: Resources) -> int:
    """How many workers, of different gangs, a node can hold at once."""
    if not left.total.suits(ask):
        return 0
    if ask.share < WHOLE:
        most = left.whole * (WHOLE // ask.share) + sum(part // ask.share for part in left.parts)
    else:
        most = left.whole // ask.accelerators
    if ask.milli_cpus:
        most = min(most, left.milli_cpus // ask.milli_cpus)
    if ask.memory:
        most = min(most, left.memory // ask.memory)
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
