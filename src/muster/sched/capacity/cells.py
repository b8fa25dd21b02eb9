"""Groups and cells: a group is the nodes of one pool with the same hardware, a cell those of them with equal labels."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from math import inf

from muster.core.resources import Resources
from muster.sched.capacity.slot import Part, Slot

Kind = tuple[str, int]  # accelerator and its memory in bytes; ("", 0) is a node without accelerators
Wanted = tuple[tuple["Group", int], ...]  # groups that suit an ask → the lowest bucket that may hold it


class Cell:
    __slots__ = ("group", "labels", "masks", "room", "slots", "total")

    def __init__(self, group: Group, labels: tuple[str, ...]) -> None:
        self.group, self.labels = group, labels
        self.slots: list[Slot] = []
        self.masks = [0] * group.buckets
        self.room = self.total = 0  # sums of `room` and `size` over its healthy nodes

    def members(self, mask: int) -> Iterator[Slot]:
        slots = self.slots
        while mask:
            low = mask & -mask
            yield slots[low.bit_length() - 1]
            mask ^= low


class Group:
    """Nodes with the same hardware.

    `odd` are nodes with so little CPU or memory left that the count of free units alone does not tell whether a worker
    fits: less than `cpu_each` or `memory_each` per unit, which is the highest request so far. `short` counts the nodes
    with fewer CPUs or less memory left for a free accelerator than they have for each in all; `ratios` are the latter.
    """

    __slots__ = (
        "buckets", "cells", "closing", "counts", "cpu_each", "kind", "least_cpu", "least_memory", "memory_each", "odd",
        "parts", "ratios", "short",
    )  # fmt: skip

    def __init__(self, kind: Kind) -> None:
        self.kind = kind
        self.buckets = 0
        self.counts: list[int] = []
        self.cells: list[Cell] = []
        self.odd: set[Slot] = set()
        self.closing: set[Slot] = set()
        self.parts: list[Part] = []  # shared accelerators, least left first
        self.cpu_each = self.memory_each = self.short = 0
        self.ratios: Counter[tuple[int, int]] = Counter()
        self.least_cpu = self.least_memory = inf  # per unit, of a node with everything free

    def add_hardware(self, total: Resources, units: int) -> None:
        self.widen(units)
        if units:
            self.least_cpu = min(self.least_cpu, total.milli_cpus // units)
            self.least_memory = min(self.least_memory, total.memory // units)

    def widen(self, units: int) -> None:
        """Adds buckets for nodes with up to `units` units."""
        if units >= self.buckets:
            more = [0] * (units + 1 - self.buckets)
            self.buckets = units + 1
            self.counts += more
            for cell in self.cells:
                cell.masks += more

    def strands_none(self, ask: Resources) -> bool:
        """Whether a worker leaves CPUs and memory for all accelerators that remain free, whichever node it goes to."""
        if self.short or self.parts:
            return False
        cpu, memory, count = ask.milli_cpus, ask.memory, ask.accelerators
        return all(cpu <= cpu_each * count and memory <= memory_each * count for cpu_each, memory_each in self.ratios)

    def surely_fits(self, ask: Resources, need: int) -> bool:
        """Whether every node that is not odd and has `need` units free can hold the ask."""
        cpu, memory = ask.milli_cpus, ask.memory
        if cpu <= self.cpu_each * need and memory <= self.memory_each * need:
            return True
        if not need or cpu > self.least_cpu * need or memory > self.least_memory * need:
            return False
        # At least doubled, so that this happens only a few times in total, however many jobs ask for a little more.
        if cpu > self.cpu_each * need:
            self.cpu_each = int(min(self.least_cpu, max(2 * self.cpu_each, -(-cpu // need))))
        if memory > self.memory_each * need:
            self.memory_each = int(min(self.least_memory, max(2 * self.memory_each, -(-memory // need))))
        for cell in self.cells:
            for slot in cell.slots:
                self.update_odd(slot)
        return cpu <= self.cpu_each * need and memory <= self.memory_each * need

    def update_odd(self, slot: Slot) -> None:
        bucket = slot.bucket
        odd = slot.cpu < self.cpu_each * bucket or slot.memory < self.memory_each * bucket
        if odd != slot.odd:
            slot.odd = odd
            if odd:
                self.odd.add(slot)
            else:
                self.odd.discard(slot)


def kind_of(total: Resources) -> Kind:
    return (total.accelerator or "GPU", total.accelerator_memory) if total.accelerators else ("", 0)


def suits(kind: Kind, ask: Resources) -> bool:
    if not ask.accelerators:
        return True
    return kind[0] != "" and ask.accelerator in ("GPU", kind[0]) and kind[1] >= ask.accelerator_memory


def least_bucket(kind: Kind, ask: Resources) -> int:
    """The lowest bucket of a group that may hold the ask."""
    return ask.accelerators if kind[0] else ask.milli_cpus // 1000
