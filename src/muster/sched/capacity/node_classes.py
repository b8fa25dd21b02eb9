"""Classes of nodes with the same hardware and about the same free capacity, and the order in which a worker tries them.

What a request takes away from typical work (`usable.py`) is computed once for each class and kept in a ranking of the
classes, so that the cost of a placement grows with the number of different classes and not with that of nodes.
Everything catches up with what has changed when it is next used.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import merge
from itertools import islice
from math import inf, log2
from typing import TYPE_CHECKING, Final

from muster.core.entities.demand import UNKNOWN, TypicalWork
from muster.core.resources import WHOLE, Resources
from muster.sched.capacity.ranking import NodeClass, Ranking, TypeNodes
from muster.sched.capacity.usable import LEFT, NodeType

if TYPE_CHECKING:
    from muster.sched.capacity.cells import Cell
    from muster.sched.capacity.pool_index import PoolIndex
    from muster.sched.capacity.slot import Slot
    from muster.sched.capacity.view import View

CLASSES: Final = 2048  # of one type and without nodes: past it, they are forgotten
SEARCHES: Final = 8192  # requests whose rankings are known
TRIED: Final = 8  # nodes of a class that are tried first where some of its nodes can't hold the request
STEP_UP: Final = 0.05  # usable accelerators that one with twice the memory counts as in addition


class NodeClasses:
    """The index of one pool."""

    __slots__ = ("_dirty", "_searches", "_types", "_typical")

    def __init__(self) -> None:
        self._typical = UNKNOWN
        self._dirty: dict[Slot, None] = {}
        self.clear()

    def set_typical(self, typical: TypicalWork) -> bool:
        """Typical requests from now on. Returns whether it forgot all nodes, and the owner is to touch them anew."""
        if typical.shapes is self._typical.shapes:
            return False
        self._typical = typical
        types = {total: NodeType(total, typical.shapes) for total in self._types}
        if any(types[total].plenty != nodes.type.plenty for total, nodes in self._types.items()):
            self.clear()
            return True
        for total, nodes in self._types.items():
            nodes.use(types[total])
        self._searches.clear()
        return False

    def clear(self) -> None:
        """Forgets all nodes. The owner touches them anew."""
        self._types: dict[Resources, TypeNodes] = {}
        self._searches: dict[tuple[Resources, int], list[tuple[Ranking, int, float]]] = {}

    def touch(self, slot: Slot) -> None:
        """Something changed on the node."""
        self._dirty[slot] = None

    def forget(self, cell: Cell) -> None:
        """The nodes of the cell are numbered anew."""
        for nodes in self._types.values():
            if nodes.group is cell.group:
                for one in nodes.all:
                    one.leave(cell, -1)
        for slot in cell.slots:
            slot.classes = ()
            self._dirty[slot] = None

    def order(self, view: View) -> Iterator[Slot]:
        """Nodes that may hold a worker, in the order of what it takes away from typical work; sets `view.left` to what
        is left of the accelerator that it is to use there."""
        pool_index, gang, ask = view.pool_index, view.gang, view.gang.ask
        if self._dirty:
            self._catch_up(pool_index)
        request = (ask.milli_cpus, ask.memory, view.share)
        special = bool(gang.avoid or gang.require or view.kept) or gang.ends > -inf
        rankings = [entry for entry in self._search(view) if entry[0].catch_up()]
        if not rankings:
            return
        _, one, ranking = min([ranking.first(group, more) for ranking, group, more in rankings])
        if request[0] <= one.cpu and request[1] <= one.memory and not ranking.has_failed(one, request):
            view.left = one.left
            yield from islice(_members(pool_index, one), TRIED)  # mostly, one of them is taken
        late = []
        streams = [ranking.live(group, more) for ranking, group, more in rankings]
        for _, one, ranking in streams[0] if len(streams) == 1 else merge(*streams):
            sure = one.nodes.type.surely_holds(one.levels, one.left, ranking.need, ask.memory)
            if not sure and (request[0] > one.cpu or request[1] > one.memory):
                continue
            if not (sure or special) and ranking.has_failed(one, request):
                continue
            view.left = one.left
            slots = _members(pool_index, one)
            if sure:
                yield from slots
                continue
            yield from islice(slots, TRIED)
            late.append((one, ranking, slots))
        for one, ranking, slots in late:
            view.left = one.left
            yield from slots
            if not special:
                ranking.failed[one] = (one.changed, *request)

    def _search(self, view: View) -> list[tuple[Ranking, int, float]]:
        """The rankings for the request, one for each type of nodes that suits it."""
        ask, share = view.gang.ask, view.share
        found = self._searches.get((ask, share))
        if found is None:
            if len(self._searches) >= SEARCHES:
                self._searches.clear()
            orders = {group: index for index, (group, _) in enumerate(view.wanted)}
            found = self._searches[ask, share] = [
                (nodes.ranking(nodes.type.need(ask, share)), orders[nodes.group],
                 STEP_UP * log2(max(nodes.group.kind[1], 1)) * ask.weight)
                for nodes in self._types.values() if nodes.group in orders
            ]  # fmt: skip
        return found

    def _catch_up(self, pool_index: PoolIndex) -> None:
        slots = pool_index.slots
        for slot in self._dirty:
            if slots.get(slot.name) is not slot:
                continue  # it is gone, and its cell was forgotten
            old, new = slot.classes, self._classes_of(slot)
            if old != new:
                cell, bit = slot.cell, slot.bit
                for one in old:
                    if one not in new:
                        one.leave(cell, bit)
                for one in new:
                    if one not in old:
                        one.join(cell, bit)
                slot.classes = new
            for one in new:
                one.changed += 1
                if slot.cpu > one.cpu:
                    one.cpu = slot.cpu
                if slot.memory > one.memory:
                    one.memory = slot.memory
        self._dirty.clear()
        if any(nodes.dead() > CLASSES for nodes in self._types.values()):
            self.clear()
            for slot in slots.values():
                slot.classes = ()
                self._dirty[slot] = None
            self._catch_up(pool_index)

    def _classes_of(self, slot: Slot) -> tuple[NodeClass, ...]:
        if not slot.healthy:
            return ()
        old = slot.classes
        nodes = old[0].nodes if old else self._nodes(slot)
        if not slot.parts:
            levels = nodes.type.levels(slot.mask.bit_count(), slot.cpu, slot.memory, 0)
            if len(old) == 1 and old[0].levels == levels:
                return old
            return (nodes.get(levels, WHOLE),)
        levels = nodes.type.levels(slot.mask.bit_count(), slot.cpu, slot.memory, sum(slot.parts.values()))
        lefts = {left // LEFT * LEFT for left in slot.parts.values() if left}
        return tuple([nodes.get(levels, left) for left in (*sorted(lefts), WHOLE)])

    def _nodes(self, slot: Slot) -> TypeNodes:
        found = self._types.get(slot.total)
        if found is None:
            found = self._types[slot.total] = TypeNodes(NodeType(slot.total, self._typical.shapes), slot.cell.group)
            self._searches.clear()
        return found


def _members(pool_index: PoolIndex, one: NodeClass) -> Iterator[Slot]:
    """The nodes of a class: domains with the fewest equally free nodes first, so that domains stay whole; then by
    name."""
    masks = one.masks
    if len(masks) == 1:
        [(cell, mask)] = masks.items()
        yield from cell.members(mask)
        return
    tally = pool_index.tally(((one.nodes.group, one.bucket),), pool_index.levels, exact=True)
    for _, domain in tally.order:
        cells = [cell for cell in tally.cells[domain] if cell in masks]
        if len(cells) == 1:
            yield from cells[0].members(masks[cells[0]])
        elif cells:
            slots = [slot for cell in cells for slot in cell.members(masks[cell])]
            yield from sorted(slots, key=lambda slot: slot.key)
