"""Descent of the fragmentation gradient, as published by Weng et al., ATC '23, for comparison in `packing.py`.

The fragmentation of a node is the expected amount of its free accelerators that a request of the known mix can't use:
all of them where it does not fit, and otherwise the devices with less left than it wants of each. A request goes where
it adds the least; ties go to the node with the least left.
"""

from __future__ import annotations

from collections import Counter

from muster.core.resources import WHOLE, Resources
from muster.core.seat import Seat
from muster.sched.capacity.free import Free
from muster.sched.capacity.slot import Slot
from muster.sched.place import GangRequest

Device = tuple[int, ...]


class Gradient:
    def __init__(self, requests: Counter[Resources]) -> None:
        most = sum(requests.values())
        self._mix = [(ask, many / most) for ask, many in requests.most_common(64) if ask.accelerators]
        self._known: dict[tuple[int, int, int, Device], float] = {}

    def place(self, gang: GangRequest, free: Free) -> tuple[Seat, ...] | None:
        best, found = (float("inf"), float("inf")), None
        for slot in free.slots.values():
            for score, seat in self._options(slot, gang.ask):
                if (score, slot.room) < best:
                    best, found = (score, slot.room), seat
        return (found,) if found is not None else None

    def _options(self, slot: Slot, ask: Resources) -> list[tuple[float, Seat]]:
        cpu, memory = slot.cpu - ask.milli_cpus, slot.memory - ask.memory
        if cpu < 0 or memory < 0:
            return []
        whole, parts = slot.mask.bit_count(), tuple(sorted(slot.parts.values()))
        before = self._lost(slot.cpu, slot.memory, whole, parts)
        if ask.share == WHOLE:
            if whole < ask.accelerators:
                return []
            devices = tuple([device for device in range(slot.devices) if slot.mask >> device & 1][: ask.accelerators])
            after = self._lost(cpu, memory, whole - ask.accelerators, parts)
            return [(after - before, Seat(slot.name, devices))]
        found = []
        for left, device in {left: device for device, left in slot.parts.items() if left >= ask.share}.items():
            rest = list(parts)
            rest.remove(left)
            after = self._lost(cpu, memory, whole, tuple(sorted([*rest, left - ask.share])))
            found.append((after - before, Seat(slot.name, (device,), ask.share)))
        if whole:
            device = (slot.mask & -slot.mask).bit_length() - 1
            after = self._lost(cpu, memory, whole - 1, tuple(sorted([*parts, WHOLE - ask.share])))
            found.append((after - before, Seat(slot.name, (device,), ask.share)))
        return found

    def _lost(self, cpu: int, memory: int, whole: int, parts: Device) -> float:
        key = (cpu, memory, whole, parts)
        lost = self._known.get(key)
        if lost is None:
            free, lost = WHOLE * whole + sum(parts), 0.0
            for ask, often in self._mix:
                small = sum([left for left in parts if left < ask.share])
                fits = cpu >= ask.milli_cpus and memory >= ask.memory
                fits = fits and (whole >= ask.accelerators or (ask.share < WHOLE and small < sum(parts)))
                lost += often * (small if fits else free)
            self._known[key] = lost
        return lost
