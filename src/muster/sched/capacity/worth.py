"""What a node's free capacity is worth: how many accelerators this cluster's typical work could still use there.

An accelerator is worth nothing to work that finds too few CPUs, or too little memory, beside it. So the worth of a node
is, averaged over the typical requests, the number of accelerators that are in use once the node is filled with that
request alone. Work is placed where it takes the least worth away. The typical requests are learnt
(`core/entities/demand.py`); while little is known, work is assumed to ask for a node's own ratio.
"""

from __future__ import annotations

from math import inf
from typing import Final

from muster.core.entities.demand import Shape
from muster.core.resources import WHOLE, Resources
from muster.sched.capacity.cells import kind_of, suits

LEVELS: Final = 16  # of a node's CPUs
MEMORY_LEVELS: Final = 8
PLENTY: Final = MEMORY_LEVELS + 1  # level of memory that no typical request could use up before the CPUs
PARTS: Final = 500  # thousandths: resolution of what is left of shared accelerators, in sum
PRIOR: Final = 4.0  # how many requests the node's own ratio counts as
WHOLE_NODE: Final = 0.25  # of these, requests for all of the node

Key = tuple[int, int, int, int]  # whole free accelerators, and levels of CPUs, memory and shared accelerators


class Make:
    """Nodes with the same hardware: what their free capacity is worth."""

    __slots__ = (
        "_plain", "_shapes", "_wastes", "_worths", "cpu_step", "memory_step", "order", "plenty", "total",
    )  # fmt: skip

    def __init__(self, total: Resources, typical: tuple[Shape, ...]) -> None:
        self.total = total
        self._plain = not total.accelerators
        # Nodes without accelerators are worth nothing, and are told apart by whole CPUs, the fullest first.
        self.cpu_step = 1000 if self._plain else max(total.milli_cpus // LEVELS, 1)
        self.memory_step = max(total.memory // MEMORY_LEVELS, 1)
        self.order = (total.accelerators, total.milli_cpus, total.memory)
        self._shapes = () if self._plain else _shapes(total, typical)
        self.plenty = max([_bytes_per_cpu(cpu, memory) for _, _, cpu, memory, _ in self._shapes], default=0.0)
        self._worths: dict[Key, float] = {}
        self._wastes: dict[int, float] = {}

    def key(self, whole: int, cpu: int, memory: int, shared: int) -> Key:
        """`shared`: thousandths left of shared accelerators, in sum. Nodes with one key are treated alike."""
        cpu = max(cpu, 0)
        if self._plain:
            return 0, cpu // 1000, PLENTY, 0
        level = PLENTY if memory >= self.plenty * cpu else max(memory, 0) // self.memory_step
        return whole, cpu // self.cpu_step, level, (shared + PARTS // 2) // PARTS

    def may_hold(self, key: Key, left: int, ask: Resources, share: int) -> bool:
        """Whether a node with the key may hold the ask; `left` of an accelerator, or WHOLE."""
        whole, cpu, memory, _ = key
        if ask.milli_cpus >= (cpu + 1) * self.cpu_step:
            return False
        if memory != PLENTY and ask.memory >= (memory + 1) * self.memory_step:
            return False
        return whole >= ask.accelerators if left == WHOLE else left >= share

    def surely_holds(self, key: Key, ask: Resources) -> bool:
        """Whether every node with the key has the CPUs and the memory."""
        _, cpu, memory, _ = key
        if ask.milli_cpus > cpu * self.cpu_step:
            return False
        if memory != PLENTY:
            return ask.memory <= memory * self.memory_step
        return not ask.memory or (not self._plain and ask.memory <= self.plenty * cpu * self.cpu_step)

    def loss(self, key: Key, left: int, ask: Resources, share: int) -> float:
        """How much worth the ask takes away: from a shared accelerator of which this is left, or from whole ones."""
        if self._plain:
            return 0.0
        whole, cpu, memory, shared = key
        waste = 0.0
        if left < WHOLE:
            shared = (max(shared * PARTS - share, 0) + PARTS // 2) // PARTS
            waste = self.waste(left - share) - self.waste(left)
        elif share < WHOLE and ask.accelerators:
            whole, shared = whole - 1, (shared * PARTS + WHOLE - share + PARTS // 2) // PARTS
            waste = self.waste(WHOLE - share)
        else:
            whole -= ask.accelerators
        cpu = max(cpu * self.cpu_step - ask.milli_cpus, 0) // self.cpu_step
        if memory != PLENTY:
            memory = max(memory * self.memory_step - ask.memory, 0) // self.memory_step
        return self.worth(key) - self.worth((whole, cpu, memory, shared)) + waste

    def worth(self, key: Key) -> float:
        found = self._worths.get(key)
        if found is None:
            found = self._worths[key] = self._worth(key)
        return found

    def waste(self, left: int) -> float:
        """What typical requests for parts can't use of a shared accelerator of which this is left."""
        found = self._wastes.get(left)
        if found is None:
            parts = [(share, weight) for _, share, _, _, weight in self._shapes if share < WHOLE]
            found = self._wastes[left] = sum([weight * (left % share) for share, weight in parts]) / WHOLE
        return found

    def _worth(self, key: Key) -> float:
        whole, cpu, memory, shared = key
        cpu, shared = cpu * self.cpu_step, shared * PARTS
        found, size = 0.0, inf if memory == PLENTY else memory * self.memory_step
        for count, share, wanted, bytes_, weight in self._shapes:
            fit = _fit(whole, shared, count, share)
            if wanted and cpu // wanted < fit:
                fit = cpu // wanted
            if bytes_ and size // bytes_ < fit:
                fit = size // bytes_
            found += weight * fit * count * share
        return found / WHOLE


def _fit(whole: int, shared: int, count: int, share: int) -> float:
    """How many requests the accelerators hold. Of shared ones, what is left over of each counts as `waste`."""
    return whole // count if share == WHOLE else whole * (WHOLE // share) + shared / share


def _shapes(total: Resources, typical: tuple[Shape, ...]) -> tuple[tuple[int, int, int, int, float], ...]:
    """Count, share, milli-CPUs, memory and relative frequency of the typical requests that suit the hardware."""
    kind, known = kind_of(total), [(shape.ask, shape.weight) for shape in typical if shape.ask.accelerators]
    each, (cpu, memory) = (
        total.accelerators,
        (total.milli_cpus // total.accelerators, total.memory // total.accelerators),
    )
    found = [(each, WHOLE, total.milli_cpus, total.memory, PRIOR * WHOLE_NODE)]
    found.append((1, WHOLE, cpu, memory, PRIOR * (1 - WHOLE_NODE)))
    for ask, weight in known:
        if suits(kind, ask) and ask.accelerators <= each:
            found.append((ask.accelerators, ask.share, ask.milli_cpus, ask.memory, weight))
    # Over all requests, also those that need other hardware: so what few can use is given up before what many want.
    everything = PRIOR + sum([weight for _, weight in known])
    return tuple([(*shape[:4], shape[4] / everything) for shape in found])


def _bytes_per_cpu(cpu: int, memory: int) -> float:
    return (memory / cpu if cpu else inf) if memory else 0.0
