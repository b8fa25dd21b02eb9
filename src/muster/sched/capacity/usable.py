"""How many accelerators typical work could still use on a node, by what is free there.

An accelerator is of no use to work that finds too few CPUs, or too little memory, beside it. So the usable accelerators
of a node are, averaged over the typical requests, those that are in use once the node is filled with that request
alone. A single worker is placed where the fewest are lost. The typical requests are learnt (`core/entities/demand.py`);
while little is known, work is assumed to ask for a node's own ratio.

What is free is counted in levels, so that nodes with about the same free capacity are treated alike.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import ceil, inf, log2
from typing import Final, Protocol, TypeVar

from muster.core.entities.demand import Shape
from muster.core.resources import WHOLE, Resources
from muster.sched.capacity.cells import kind_of, suits

CPU_LEVELS: Final = 16  # of a node's CPUs
MEMORY_LEVELS: Final = 8
PLENTY: Final = MEMORY_LEVELS + 1  # level of memory that no typical request could use up before the CPUs
PARTS: Final = 1000  # thousandths: resolution of what is left of shared accelerators, in sum
LEFT: Final = 50  # thousandths: resolution of what is left of one shared accelerator
PRIOR: Final = 4.0  # how many requests the node's own ratio counts as
WHOLE_NODE: Final = 0.25  # of these, requests for all of the node
OWN: Final = 2  # shapes that stand for the node's own ratio, before the known ones
# Usable accelerators that going to an idle node costs in addition, if all known work wants whole nodes. Nodes with less
# free cost less: work gathers on full nodes and others become idle as it ends, for those that need them whole.
EMPTINESS: Final = 6.0

Levels = tuple[int, int, int, int]  # free: whole accelerators, levels of CPUs, of memory, of shared accelerators in sum
Need = tuple[int, int, int, int]  # a request: accelerators, thousandths of each, levels of CPUs and of memory


class HasLevels(Protocol):
    levels: Levels
    left: int  # of a shared accelerator, or WHOLE


AnyClass = TypeVar("AnyClass", bound=HasLevels)


class NodeType:
    """Nodes with the same hardware: levels of what is free on them, and the accelerators that are usable with it."""

    __slots__ = (
        "_emptiness", "_lost_parts", "_shapes", "_usable", "cpu_step", "memory_step", "order", "plain", "plenty",
        "total",
    )  # fmt: skip

    def __init__(self, total: Resources, typical: tuple[Shape, ...]) -> None:
        self.total = total
        self.plain = not total.accelerators
        # Nodes without accelerators lose none, and are told apart by whole CPUs, the fullest first.
        self.cpu_step = 1000 if self.plain else max(total.milli_cpus // CPU_LEVELS, 1)
        self.memory_step = max(total.memory // MEMORY_LEVELS, 1)
        self.order = (total.accelerators, total.milli_cpus, total.memory)
        self._shapes = () if self.plain else _shapes(total, typical)
        most = max([_bytes_per_cpu(cpu, memory) for _, _, cpu, memory, _ in self._shapes], default=0.0)
        self.plenty = 2.0 ** ceil(log2(most)) if 0 < most < inf else most  # which seldom changes
        self._emptiness = EMPTINESS * _whole_nodes(total, self._shapes[OWN:]) / max(total.accelerators, 1)
        self._usable: dict[Levels, float] = {}
        self._lost_parts: dict[int, float] = {}

    def levels(self, whole: int, cpu: int, memory: int, shared: int) -> Levels:
        """`shared`: thousandths left of shared accelerators, in sum."""
        cpu = max(cpu, 0)
        if self.plain:
            return 0, cpu // 1000, PLENTY, 0
        level = PLENTY if memory >= self.plenty * cpu else max(memory, 0) // self.memory_step
        return whole, cpu // self.cpu_step, level, (shared + PARTS // 2) // PARTS

    def need(self, ask: Resources, share: int) -> Need:
        """The request in levels, rounded up: requests with one need are ranked alike."""
        if share < WHOLE:
            share = min(-(-share // LEFT) * LEFT, WHOLE - 1)
        return ask.accelerators, share, -(-ask.milli_cpus // self.cpu_step), -(-ask.memory // self.memory_step)

    def surely_holds(self, levels: Levels, left: int, need: Need, memory: int) -> bool:
        """Whether every node with these levels holds the need, and so many bytes."""
        _, cpu, free, _ = levels
        if need[2] > cpu or (left < WHOLE and left < need[1]):
            return False
        if free != PLENTY:
            return need[3] <= free
        return not memory or (not self.plain and memory <= self.plenty * cpu * self.cpu_step)

    def losses(self, classes: Iterable[AnyClass], need: Need) -> Iterator[tuple[AnyClass, float]]:
        """The classes of nodes that may hold the need, and how many usable accelerators it takes away there."""
        count, share, cpus, bytes_ = need
        known, parts = self._usable, share < WHOLE and count > 0
        for one in classes:
            whole, cpu, memory, shared = levels = one.levels
            left = one.left
            if cpu + 1 < cpus or (memory + 1 < bytes_ and memory != PLENTY):
                continue
            if whole < count if left == WHOLE else not parts or left + LEFT < share:
                continue
            if self.plain:
                yield one, 0.0
                continue
            lost = known[levels] if levels in known else self.usable(levels)
            if left < WHOLE:
                rest = left - share if left > share else 0
                shared = (max(shared * PARTS - share, 0) + PARTS // 2) // PARTS
                lost += self.lost_part(rest) - self.lost_part(left)
            elif parts:
                rest = WHOLE - share
                whole, shared = whole - 1, (shared * PARTS + rest + PARTS // 2) // PARTS
                lost += self.lost_part(rest)
            else:
                whole -= count
            memory = PLENTY if memory == PLENTY else max(memory - bytes_, 0)
            levels = (whole, cpu - cpus if cpu > cpus else 0, memory, shared)
            lost -= known[levels] if levels in known else self.usable(levels)
            yield one, round(lost + self._emptiness * one.levels[0], 9)

    def usable(self, levels: Levels) -> float:
        found = self._usable.get(levels)
        if found is None:
            found = self._usable[levels] = self._count(levels)
        return found

    def lost_part(self, left: int) -> float:
        """What typical requests for parts can't use of a shared accelerator of which this is left."""
        found = self._lost_parts.get(left)
        if found is None:
            parts = [(share, weight) for _, share, _, _, weight in self._shapes if share < WHOLE]
            found = self._lost_parts[left] = sum([weight * (left % share) for share, weight in parts]) / WHOLE
        return found

    def _count(self, levels: Levels) -> float:
        whole, cpu, memory, shared = levels
        cpu, shared = cpu * self.cpu_step, shared * PARTS
        found, size = 0.0, inf if memory == PLENTY else memory * self.memory_step
        for count, share, wanted, bytes_, weight in self._shapes:
            # Of shared accelerators, what is left over of each counts as lost in `lost_part`.
            fit = whole // count if share == WHOLE else whole * (WHOLE // share) + shared / share
            if wanted and cpu // wanted < fit:
                fit = cpu // wanted
            if bytes_ and size // bytes_ < fit:
                fit = size // bytes_
            found += weight * fit * count * share
        return found / WHOLE


def _shapes(total: Resources, typical: tuple[Shape, ...]) -> tuple[tuple[int, int, int, int, float], ...]:
    """Count, share, milli-CPUs, memory and relative frequency of the typical requests that suit the hardware."""
    kind, count = kind_of(total), total.accelerators
    known = [(shape.ask, shape.weight) for shape in typical if shape.ask.accelerators]
    found = [(count, WHOLE, total.milli_cpus, total.memory, PRIOR * WHOLE_NODE)]
    found.append((1, WHOLE, total.milli_cpus // count, total.memory // count, PRIOR * (1 - WHOLE_NODE)))
    for ask, weight in known:
        if suits(kind, ask) and ask.accelerators <= count:
            found.append((ask.accelerators, ask.share, ask.milli_cpus, ask.memory, weight))
    # Over all requests, also those that need other hardware: so what few can use is given up before what many want.
    everything = PRIOR + sum([weight for _, weight in known])
    return tuple([(*shape[:4], shape[4] / everything) for shape in found])


def _whole_nodes(total: Resources, known: tuple[tuple[int, int, int, int, float], ...]) -> float:
    """The part of the accelerators that are asked for by requests for whole nodes of several accelerators."""
    asked = [(count, count * share * weight) for count, share, _, _, weight in known]
    everything = sum([amount for _, amount in asked])
    whole = sum([amount for count, amount in asked if count >= max(total.accelerators, 2)])
    return whole / everything if everything else 0.0


def _bytes_per_cpu(cpu: int, memory: int) -> float:
    return (memory / cpu if cpu else inf) if memory else 0.0
