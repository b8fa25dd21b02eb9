"""Index of the nodes of one pool: by hardware, by topology, and by free capacity.

A node's `bucket` is its number of wholly free accelerators, or of whole free CPUs where it has no accelerators. Each
cell keeps one bit mask per bucket, with its nodes in the order of their names, so that a change costs two bit
operations. Counts per domain (`Tally`) catch up with the changed cells when they are next used.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter
from math import inf
from operator import attrgetter, itemgetter

from muster.core.entities.demand import TypicalWork
from muster.core.resources import WHOLE, Resources
from muster.core.rules import PoolRules
from muster.sched.capacity.cells import Cell, Group, Kind, Wanted, kind_of, least_bucket, suits
from muster.sched.capacity.node_classes import NodeClasses
from muster.sched.capacity.slot import IdleKey, Slot
from muster.sched.capacity.tally import Tally

_LOG = 4096  # changed cells that are logged for the tallies
_NONE: frozenset[Slot] = frozenset()


class PoolIndex:
    __slots__ = (
        "_kept", "cells", "classes", "grew", "groups", "holders", "idle", "labelled", "levels", "log", "names", "pool",
        "room", "rules", "slots", "spares", "stale", "tallies", "total", "wants",
    )  # fmt: skip

    def __init__(self, pool: str, rules: PoolRules) -> None:
        self.pool, self.rules, self.spares = pool, rules, rules.spares
        self.levels = _levels(rules)  # widest first
        self.names = self.levels  # labels that separate cells: the levels, then others that gangs have named
        self.slots: dict[str, Slot] = {}
        self.labelled: Counter[str] = Counter()  # label → nodes that carry it
        self.holders: dict[str, dict[str, Slot]] = {}  # name from the nodes' `holds` label → these nodes
        self.grew = 0
        self._kept: frozenset[Slot] | None = None  # the spares while their choice is fixed
        self.classes = NodeClasses()  # its nodes by what typical work could use of them
        self._clear()

    def set_rules(self, rules: PoolRules) -> None:
        spares, levels = self.spares, self.levels
        self.rules, self.spares, self.levels = rules, rules.spares, _levels(rules)
        if levels != self.levels:
            self._rebuild(self.levels)
        elif spares != self.spares:
            self._rebuild(self.names)

    def set_typical(self, typical: TypicalWork) -> None:
        """What work typically asks for from now on."""
        if self.classes.set_typical(typical):
            for slot in self.slots.values():
                slot.classes = ()
                self.classes.touch(slot)

    def index_label(self, label: str) -> bool:
        """Whether any node carries the label. If so, cells are separated by it from now on."""
        if not self.labelled[label]:
            return False
        if label not in self.names:
            self._rebuild((*self.names, label))
        return True

    def add(self, slot: Slot) -> None:
        self.slots[slot.name] = slot
        for label, value in slot.labels.items():
            if value:
                self.labelled[label] += 1
        for word in slot.holds:
            self.holders.setdefault(word, {})[slot.name] = slot
        self._settle(slot)

    def remove(self, slot: Slot) -> None:
        del self.slots[slot.name]
        for label, value in slot.labels.items():
            if value:
                self.labelled[label] -= 1
        for word in slot.holds:
            del self.holders[word][slot.name]
        slot.healthy = False
        self.refresh(slot)
        group = slot.cell.group
        group.closing.discard(slot)
        group.ratios -= Counter([slot.each])
        slot.cell.slots.remove(slot)
        self.stale.add(slot.cell)

    def update_closing(self, slot: Slot) -> None:
        """Updates whether the slot is listed among those that close at some time."""
        closing = slot.cell.group.closing
        if slot.closes < inf:
            closing.add(slot)
        else:
            closing.discard(slot)

    def refresh(self, slot: Slot) -> None:
        """Updates the index with what is free on the slot now."""
        cell = slot.cell
        group = cell.group
        self.classes.touch(slot)
        if not slot.healthy:
            bucket = -1
        elif slot.devices:
            bucket = slot.mask.bit_count()
        else:
            bucket = max(slot.cpu, 0) // 1000
        if bucket != slot.bucket:
            self._move(slot, cell, bucket)
        if slot.odd or slot.cpu < group.cpu_each * bucket or slot.memory < group.memory_each * bucket:
            group.update_odd(slot)
        if slot.devices:
            room = bucket * WHOLE if bucket > 0 else 0
            if slot.parts or slot.shared:
                room += self._refresh_parts(slot, group)
            self.room += room - slot.room
            cpu_each, memory_each = slot.each
            short = bucket > 0 and (slot.cpu < cpu_each * bucket or slot.memory < memory_each * bucket)
            if short != slot.short:
                slot.short = short
                group.short += 1 if short else -1
        else:
            room = slot.cpu if bucket >= 0 else 0
        cell.room += room - slot.room
        slot.room = room
        if self.spares:
            self._refresh_idle(slot)

    def kept(self, spares: str = "") -> frozenset[Slot]:
        """The spares: nodes that a gang may not use, unless `spares` names this pool."""
        if not self.spares or spares == self.pool:
            return _NONE
        return frozenset([slot for _, slot in self.idle[-self.spares :]]) if self._kept is None else self._kept

    @property
    def fixed(self) -> bool:
        return self._kept is not None

    def fix_spares(self, fixed: bool) -> None:
        """While they are fixed, nodes that become free do not join the spares."""
        self._kept = None
        self._kept = self.kept() if fixed else None

    def tally(self, wanted: Wanted, labels: tuple[str, ...], exact: bool = False) -> Tally:
        """The domains of nodes that share `labels`, with the number of nodes that could hold an ask; up to date."""
        key = (wanted, labels, exact)
        tally = self.tallies.get(key)
        if tally is None:
            where = tuple([self.names.index(label) for label in labels])
            tally = self.tallies[key] = Tally(wanted, where, exact, self.cells.values(), len(self.log))
        elif tally.seen < len(self.log):
            tally.catch_up(self.log)
        return tally

    def wanted(self, ask: Resources) -> Wanted:
        """The groups that suit an ask, the most expendable first: no accelerators, then less accelerator memory.

        Every placement begins with this call, so it also sorts the cells that need it.
        """
        if self.stale:
            self._tidy()
        need = ask.accelerators or -1 - ask.milli_cpus // 1000
        key = (ask.accelerator, ask.accelerator_memory, need)
        found = self.wants.get(key)
        if found is None:
            kinds = sorted((kind for kind in self.groups if suits(kind, ask)), key=lambda kind: (kind[1], kind[0]))
            found = self.wants[key] = tuple((self.groups[kind], least_bucket(kind, ask)) for kind in kinds)
        return found

    def _clear(self) -> None:
        self.groups: dict[Kind, Group] = {}
        self.cells: dict[tuple[Kind, tuple[str, ...]], Cell] = {}
        self.stale: set[Cell] = set()  # cells whose nodes are not sorted
        self.log: list[Cell] = []
        self.tallies: dict[tuple[Wanted, tuple[str, ...], bool], Tally] = {}
        self.wants: dict[tuple[str, int, int], Wanted] = {}
        self.idle: list[tuple[IdleKey, Slot]] = []  # of a pool with spares: nodes on which nothing runs, sorted
        self.room = self.total = 0  # thousandths of accelerators of healthy nodes: free, and all

    def _rebuild(self, names: tuple[str, ...]) -> None:
        self.names = names
        self._clear()
        self.classes.clear()
        for slot in self.slots.values():
            self._settle(slot)

    def _settle(self, slot: Slot) -> None:
        """Puts a slot into its cell."""
        kind, units = kind_of(slot.total), slot.total.accelerators or slot.total.milli_cpus // 1000
        group = self.groups.get(kind)
        if group is None:
            group = self.groups[kind] = Group(kind)
            self.wants.clear()
            self.tallies.clear()
        group.add_hardware(slot.total, units)
        group.ratios[slot.each] += 1
        where = tuple([slot.labels.get(name, "") for name in self.names])
        cell = self.cells.get((kind, where))
        if cell is None:
            cell = self.cells[kind, where] = Cell(group, where)
            group.cells.append(cell)
        if cell.slots and cell.slots[-1].key > slot.key:
            self.stale.add(cell)
        slot.cell, slot.place = cell, (cell.labels[: len(self.levels)], slot.key)
        slot.bit, slot.bucket, slot.odd, slot.room, slot.shared = 1 << len(cell.slots), -1, False, 0, []
        slot.idle, slot.classes, slot.short = None, (), False
        cell.slots.append(slot)
        self.update_closing(slot)
        self.refresh(slot)

    def _move(self, slot: Slot, cell: Cell, bucket: int) -> None:
        old, group, bit = slot.bucket, cell.group, slot.bit
        if bucket >= group.buckets:
            group.widen(bucket)
        if old >= 0:
            cell.masks[old] ^= bit
            group.counts[old] -= 1
        else:
            self.total += slot.devices * WHOLE
            cell.total += slot.size
        if bucket >= 0:
            cell.masks[bucket] ^= bit
            group.counts[bucket] += 1
        else:
            self.total -= slot.devices * WHOLE
            cell.total -= slot.size
        slot.bucket = bucket
        self.log.append(cell)
        if len(self.log) > _LOG:
            self.log.clear()
            self.tallies.clear()

    def _refresh_parts(self, slot: Slot, group: Group) -> int:
        """Updates the list of shared accelerators. Returns what is left of the slot's, in thousandths."""
        for part in slot.shared:
            del group.parts[bisect_left(group.parts, part)]
        parts = slot.parts.items() if slot.healthy else ()
        slot.shared = [(left, slot.key, device, slot) for device, left in parts]
        for part in slot.shared:
            insort(group.parts, part)
        return sum(part[0] for part in slot.shared)

    def _refresh_idle(self, slot: Slot) -> None:
        key = slot.idle_key()
        if key != slot.idle:
            if slot.idle is not None:
                del self.idle[bisect_left(self.idle, slot.idle, key=itemgetter(0))]
            if key is not None:
                insort(self.idle, (key, slot), key=itemgetter(0))
            slot.idle = key

    def _tidy(self) -> None:
        """Sorts the nodes of cells again to which nodes were added or from which nodes were removed."""
        for cell in self.stale:
            cell.slots.sort(key=attrgetter("key"))
            cell.masks = [0] * cell.group.buckets
            for index, slot in enumerate(cell.slots):
                slot.bit = 1 << index
                if slot.bucket >= 0:
                    cell.masks[slot.bucket] |= slot.bit
            self.classes.forget(cell)
        self.stale.clear()


def _levels(rules: PoolRules) -> tuple[str, ...]:
    # A level named "node" is the node itself, which holds one worker of a gang, so it is not used as a domain.
    return tuple(name for name in rules.levels if name != "node")
