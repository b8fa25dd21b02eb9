"""What one pool offers one gang: nodes that could hold one of its workers, and domains with enough such nodes."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from heapq import merge
from itertools import islice
from operator import attrgetter

from muster.core.resources import WHOLE
from muster.core.seat import Seat
from muster.sched.capacity.cells import Cell, Group, Wanted
from muster.sched.capacity.free import Free
from muster.sched.capacity.pool_index import PoolIndex
from muster.sched.capacity.slot import Slot, pick_devices, round_to_slice
from muster.sched.capacity.tally import Domain
from muster.sched.capacity.usable import LEFT
from muster.sched.place import GangRequest

Labels = tuple[str, ...]


class View:
    __slots__ = ("_masks", "gang", "kept", "late", "left", "needs", "out", "pool_index", "share", "sharers", "wanted")

    def __init__(self, pool_index: PoolIndex, gang: GangRequest, wanted: Wanted) -> None:
        self.pool_index, self.gang, self.wanted = pool_index, gang, wanted
        self.needs: dict[Group, int] = dict(wanted)
        self.share = WHOLE if gang.ask.share >= WHOLE else round_to_slice(gang.ask.share, pool_index.rules.slices)
        self.kept = pool_index.kept(gang.spares) if pool_index.spares else None  # spares, which it may not use
        self.left: int | None = None  # what the chosen device has left, rounded down, or WHOLE; None: the tightest fit
        self.out: dict[Cell, int] = {}  # nodes with enough free units that still can't hold a worker, as bits
        self.late: dict[Cell, int] = {}  # nodes to use last, as bits
        self._masks: dict[Cell, int] = {}
        self.sharers: dict[Cell, int] = {}  # nodes with a shared accelerator that can hold the requested part, as bits

    def mask(self, cell: Cell) -> int:
        """The nodes of the cell that could hold a worker, as bits."""
        found = self._masks.get(cell)
        if found is None:
            found = self.sharers.get(cell, 0)
            for mask in cell.masks[self.needs[cell.group] :]:
                found |= mask
            if cell in self.out:
                found &= ~self.out[cell]
            self._masks[cell] = found
        return found

    def count(self, cells: Sequence[Cell]) -> int:
        return sum([self.mask(cell).bit_count() for cell in cells])

    def cells(self) -> list[Cell]:
        return [cell for group, _ in self.wanted for cell in group.cells]

    def enough(self, count: int) -> bool:
        """Whether at least `count` nodes in total could hold a worker."""
        if self.out or self.sharers:
            return self.count(self.cells()) >= count
        return sum([sum(group.counts[need:]) for group, need in self.wanted]) >= count

    def domains(self, labels: Labels, enough: int) -> list[tuple[int, Domain]]:
        """All domains of nodes that share the labels in which enough nodes could hold a worker, tightest first."""
        tally = self.pool_index.tally(self.wanted, labels)
        doubtful = self._doubtful(labels)
        found = [entry for entry in tally.order[tally.tightest(enough) :] if entry[1] not in doubtful]
        found += [(count, domain) for domain, count in doubtful.items() if count >= enough]
        return sorted(found)

    def tightest(self, labels: Labels, enough: int) -> list[Cell] | None:
        """The cells of the first of `domains`; None when there is none."""
        tally = self.pool_index.tally(self.wanted, labels)
        doubtful = self._doubtful(labels)
        found = [(count, domain) for domain, count in doubtful.items() if count >= enough]
        for entry in islice(tally.order, tally.tightest(enough), None):
            if entry[1] not in doubtful:
                found.append(entry)
                break
        return tally.cells[min(found)[1]] if found else None

    def within(self, labels: Labels, domain: Domain) -> list[Cell]:
        return self.pool_index.tally(self.wanted, labels).cells[domain]

    def ranked(self, cells: Sequence[Cell], emptiest: bool = False) -> Iterator[Slot]:
        """The nodes that could hold a worker: fullest (or emptiest) first, then by name; nodes to avoid at the end."""
        late = [(cell, self.late[cell]) for cell in cells if cell in self.late]
        yield from self._ranked([(cell, ~self.late.get(cell, 0)) for cell in cells], emptiest)
        if late:
            yield from self._ranked(late, emptiest)

    def could_take(self, slot: Slot) -> bool:
        """Whether the node could hold a worker."""
        return slot.cell.group in self.needs and bool(self.mask(slot.cell) & slot.bit)

    def choose(self, slot: Slot) -> None:
        """Excludes the slot from now on: it has a worker of the gang, or can't hold one."""
        self.out[slot.cell] = self.out.get(slot.cell, 0) | slot.bit
        self._masks.pop(slot.cell, None)

    def seats(self, slots: list[Slot]) -> tuple[Seat, ...]:
        """One seat on each node, sorted along the topology, so that ranks with close numbers are close together."""
        slots.sort(key=attrgetter("place"))
        count = self.gang.ask.accelerators
        if count and self.share == WHOLE:
            return tuple([Seat(slot.name, pick_devices(slot.mask, count, slot.links)) for slot in slots])
        return tuple([self.seat(slot) for slot in slots])

    def seat(self, slot: Slot) -> Seat:
        count = self.gang.ask.accelerators
        if not count:
            return Seat(slot.name)
        if self.share < WHOLE:
            part = self._part(slot)
            device = part[1] if part else pick_devices(slot.mask, 1, slot.links)[0]
            return Seat(slot.name, (device,), self.share)
        return Seat(slot.name, pick_devices(slot.mask, count, slot.links))

    def reaches(self, slot: Slot) -> bool:
        """Whether the node has enough free units, or a shared accelerator with enough left."""
        need = self.needs.get(slot.cell.group)
        if need is None or slot.bucket < 0:
            return False
        return slot.bucket >= need or (self.share < WHOLE and slot.part(self.share) is not None)

    def holds(self, slot: Slot) -> bool:
        """Whether a node with enough free units can hold a worker: CPUs, memory, time before it closes, no spare."""
        gang = self.gang
        ask = gang.ask
        if self.kept is not None and slot in self.kept:
            return False
        if self.left is not None and self.left < self.share and self._part(slot) is None:
            return False
        return slot.cpu >= ask.milli_cpus and slot.memory >= ask.memory and slot.closes >= gang.ends

    def look(self) -> View:
        """Excludes nodes that can't hold a worker. A gang of one skips this: it checks nodes one by one."""
        gang, share = self.gang, self.share
        for group, need in self.wanted:
            if share < WHOLE:
                for _, _, _, slot in group.parts[bisect_left(group.parts, (share,)) :]:
                    self.sharers[slot.cell] = self.sharers.get(slot.cell, 0) | slot.bit
            if share == WHOLE and group.surely_fits(gang.ask, need):
                doubtful: Iterator[Slot] = iter(group.odd | group.closing)
            else:
                doubtful = (slot for cell in group.cells for slot in cell.members(self.mask(cell)))
            for slot in list(doubtful):
                if not self.holds(slot):
                    self.choose(slot)
        for slot in self.kept or ():
            self.choose(slot)
        for name in gang.avoid & self.pool_index.slots.keys():
            slot = self.pool_index.slots[name]
            self.late[slot.cell] = self.late.get(slot.cell, 0) | slot.bit
        return self

    def without_late(self) -> View:
        """The same view without the nodes to avoid."""
        other = View(self.pool_index, self.gang, self.wanted)
        other.out, other.sharers = dict(self.out), self.sharers
        for cell, mask in self.late.items():
            other.out[cell] = other.out.get(cell, 0) | mask
        return other

    def _part(self, slot: Slot) -> tuple[int, int] | None:
        """The shared accelerator for the part, as (thousandths left, device); None where a free one is to be used."""
        if self.left is None:
            return slot.part(self.share)
        if self.left == WHOLE:
            return None
        part = slot.part(max(self.share, self.left))
        return part if part is not None and part[0] < self.left + LEFT else None

    def _doubtful(self, labels: Labels) -> dict[Domain, int]:
        """Domains where free units alone don't decide → number of nodes that could hold a worker."""
        if not self.out and not self.sharers:
            return {}
        tally = self.pool_index.tally(self.wanted, labels)
        found = {tally.domains.get(cell) for cell in (*self.out, *self.sharers)}
        return {domain: self.count(tally.cells[domain]) for domain in found if domain is not None}

    def _ranked(self, masks: Sequence[tuple[Cell, int]], emptiest: bool) -> Iterator[Slot]:
        shared = [(cell, self.sharers[cell] & self.mask(cell) & mask) for cell, mask in masks if cell in self.sharers]
        if shared:
            yield from sorted(
                [slot for cell, mask in shared for slot in cell.members(mask)],
                key=lambda slot: (slot.part(self.share), slot.key),
            )
        masks = [(cell, mask & self.mask(cell) & ~self.sharers.get(cell, 0)) for cell, mask in masks]
        first, last = min(self.needs.values()), max([cell.group.buckets for cell, _ in masks], default=0)
        for bucket in reversed(range(first, last)) if emptiest else range(first, last):
            there = [(cell, cell.masks[bucket] & mask) for cell, mask in masks if bucket < cell.group.buckets]
            there = [(cell, mask) for cell, mask in there if mask]
            if len(there) == 1:
                yield from there[0][0].members(there[0][1])
            elif there:
                yield from merge(*[cell.members(mask) for cell, mask in there], key=attrgetter("key"))


def views(gang: GangRequest, free: Free) -> Iterator[View]:
    """The views to try, in order: each pool; in it each suitable kind of accelerator alone, then all kinds together.

    Each of them first without the nodes to avoid, then with them.
    """
    labels = [label for label in (gang.require, gang.prefer) if label and label != "node"]
    if gang.require == "node" and gang.nodes > 1:
        return
    for pool in gang.pools:
        pool_index = free.pool_indexes.get(pool)
        if pool_index is None:
            continue
        known = {label for label in labels if pool_index.index_label(label)}
        if gang.require in labels and gang.require not in known:
            continue
        wanted = pool_index.wanted(gang.ask)
        for part in [(entry,) for entry in wanted] if len(wanted) > 1 else []:
            yield from _with_and_without_late(View(pool_index, gang, part).look())
        if wanted:
            yield from _with_and_without_late(View(pool_index, gang, wanted).look())


def _with_and_without_late(view: View) -> Iterator[View]:
    if view.late:
        yield view.without_late()
    yield view
