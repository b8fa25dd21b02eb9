"""Free capacity of one node, in plain integers. A round plans on it instead of on the state."""

from __future__ import annotations

import re
from functools import lru_cache
from math import inf
from typing import TYPE_CHECKING

from muster.core.entities import Node
from muster.core.resources import WHOLE, Resources
from muster.core.seat import Seat, is_slot
from muster.sched.spares import Size, size

if TYPE_CHECKING:
    from muster.sched.capacity.cells import Cell
    from muster.sched.capacity.ranking import NodeClass

Key = tuple[tuple[str | int, ...], str]  # sort key for natural order: n2 before n10
Part = tuple[int, Key, int, "Slot"]  # thousandths left, node key, device, slot; the first three are unique
IdleKey = tuple[float, Size, Key]  # when it closes, size, node key: the highest are spares
Saved = tuple["Slot", int, int, int, dict[int, int]]


class Slot:
    """One node. The index maintains `cell`, `place`, `classes`, `bit`, `bucket`, `idle`, `odd`, `short`, `room` and
    `shared`."""

    __slots__ = (
        "bit", "bucket", "cell", "classes", "closes", "cpu", "devices", "each", "healthy", "holds", "idle", "key",
        "labels", "links", "mask", "memory", "name", "odd", "parts", "place", "pool", "room", "shared", "short", "size",
        "total",
    )  # fmt: skip

    cell: Cell
    place: tuple[tuple[str, ...], Key]  # sort key along the topology, by which ranks are numbered

    def __init__(self, node: Node) -> None:
        self.name, self.pool, self.total = node.name, node.pool, node.total
        self.labels = dict(node.labels)
        self.key: Key = natural_key(node.name)
        self.devices = node.total.accelerators
        self.links = groups(node.labels.get("links", ""))
        self.holds = split_words(node.labels.get("holds", ""))
        self.size = node.total.accelerators * WHOLE or node.total.milli_cpus
        self.room = 0  # how much of `size` is free
        self.each = per_accelerator(node.total)
        self.bit, self.bucket, self.odd, self.short = 0, -1, False, False
        self.shared: list[Part] = []  # its entries in the index of shared accelerators
        self.idle: IdleKey | None = None  # its entry among the idle nodes of a pool with spares
        self.classes: tuple[NodeClass, ...] = ()  # of nodes with about the same free capacity
        self.healthy, self.closes = False, inf
        self.cpu = self.memory = self.mask = 0
        self.parts: dict[int, int] = {}

    def update(self, node: Node, closes: float) -> bool:
        """Copies the node's free capacity. Returns whether anything changed."""
        free = node.free
        healthy = node.health == "healthy"
        if (
            self.cpu == free.milli_cpus
            and self.mask == node.free_devices
            and self.memory == free.memory
            and self.healthy == healthy
            and self.parts == node.parts
            and self.closes == closes
        ):
            return False
        self.cpu, self.memory, self.mask = free.milli_cpus, free.memory, node.free_devices
        self.healthy, self.closes = healthy, closes
        self.parts = dict(node.parts)
        return True

    def same(self, node: Node) -> bool:
        """Whether pool, hardware and labels are unchanged, whatever is free."""
        return (
            self.pool == node.pool
            and (self.total is node.total or self.total == node.total)
            and self.labels == node.labels
        )

    def idle_key(self) -> IdleKey | None:
        """Its place among the nodes that may be spares; None while something runs on it, and in maintenance."""
        total = self.total
        free = self.mask.bit_count() == self.devices and self.cpu >= total.milli_cpus and self.memory >= total.memory
        usable = self.healthy and self.closes > -inf and not is_slot(self.name)
        return (self.closes, size(total), self.key) if free and usable else None

    def take(self, seat: Seat, ask: Resources) -> None:
        self.cpu -= ask.milli_cpus
        self.memory -= ask.memory
        if seat.share < WHOLE:
            device = seat.devices[0]
            self.parts[device] = self.parts.get(device, WHOLE) - seat.share
            self.mask &= ~(1 << device)
        elif seat.devices:
            self.mask &= ~mask_of(seat.devices)

    def give(self, seat: Seat, ask: Resources) -> None:
        self.cpu += ask.milli_cpus
        self.memory += ask.memory
        if seat.share < WHOLE:
            device = seat.devices[0]
            left = self.parts.pop(device, 0) + seat.share
            if left < WHOLE:
                self.parts[device] = left
            else:
                self.mask |= 1 << device
        elif seat.devices:
            self.mask |= mask_of(seat.devices)

    def save(self) -> Saved:
        return self, self.cpu, self.memory, self.mask, dict(self.parts) if self.parts else _NOTHING

    def restore(self, saved: Saved) -> None:
        _, self.cpu, self.memory, self.mask, parts = saved
        self.parts = dict(parts)

    def part(self, share: int) -> tuple[int, int] | None:
        """The shared accelerator with the tightest fit for `share`, as (thousandths left, device), or None."""
        return min(((left, device) for device, left in self.parts.items() if left >= share), default=None)


_NOTHING: dict[int, int] = {}


def natural_key(name: str) -> Key:
    return tuple(int(word) if word.isdigit() else word for word in re.split(r"([0-9]+)", name)), name


@lru_cache(maxsize=1024)
def per_accelerator(total: Resources) -> tuple[int, int]:
    """Milli-CPUs and bytes of memory that a node has for each of its accelerators."""
    count = total.accelerators or 1
    return total.milli_cpus // count, total.memory // count


@lru_cache(maxsize=1024)
def round_to_slice(share: int, slices: int) -> int:
    """Thousandths of an accelerator that are allocated for `share` where it is divided into `slices` equal parts.

    The fewest parts that make up the share to the nearest thousandth. Rounded down, so that all parts fit on a device.
    """
    parts = next(k for k in range(max(share * slices // WHOLE, 1), slices + 1) if round(k * WHOLE / slices) >= share)
    return parts * WHOLE // slices


@lru_cache(maxsize=4096)
def pick_devices(mask: int, count: int, links: tuple[int, ...]) -> tuple[int, ...]:
    """The lowest free devices; if possible all within one group of linked devices, the group with the tightest fit."""
    fitting = [group & mask for group in links if (group & mask).bit_count() >= count]
    if fitting:
        mask = min(fitting, key=lambda group: (group.bit_count(), group & -group))
    found: list[int] = []
    while len(found) < count:
        low = mask & -mask
        found.append(low.bit_length() - 1)
        mask ^= low
    return tuple(found)


@lru_cache(maxsize=4096)
def mask_of(devices: tuple[int, ...]) -> int:
    return sum(1 << device for device in devices)


@lru_cache(maxsize=256)
def split_words(listed: str) -> frozenset[str]:
    return frozenset(word.strip() for word in listed.split(",") if word.strip())


@lru_cache(maxsize=256)
def groups(links: str) -> tuple[int, ...]:
    """The groups of linked devices from a label such as `0-3,4-7`, as bit masks. Invalid words are skipped."""
    found = []
    for word in links.split(","):
        match = re.fullmatch(r"\s*([0-9]{1,4})(?:\s*-\s*([0-9]{1,4}))?\s*", word)
        if match:
            first, last = int(match[1]), int(match[2] or match[1])
            found.append(sum(1 << device for device in range(first, last + 1)))
    return tuple(found)
