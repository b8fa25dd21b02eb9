"""Placement of a single worker: tries nodes one by one, best first, without looking at the rest."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator

from muster.core.resources import WHOLE
from muster.core.seat import Seat
from muster.sched.capacity.cells import Cell
from muster.sched.capacity.free import Free
from muster.sched.capacity.slot import Slot
from muster.sched.capacity.view import View
from muster.sched.place import GangRequest

Order = Callable[
    [View], Iterator[Slot]
]  # nodes with enough free units, or enough of a shared accelerator; duplicates are allowed


def single(gang: GangRequest, free: Free, order: Order) -> tuple[Seat, ...] | None:
    """A seat on the first node in the order that can hold the worker. Nodes to avoid are the last resort in a pool."""
    require = gang.require if gang.require != "node" else None
    for pool in gang.pools:
        pool_index = free.pool_indexes.get(pool)
        if pool_index is None or (require is not None and not pool_index.index_label(require)):
            continue
        wanted = pool_index.wanted(gang.ask)
        view = View(pool_index, gang, wanted)
        late = None
        for slot in order(view) if wanted else ():
            if view.holds(slot) and (require is None or slot.labels.get(require)):
                if slot.name not in gang.avoid:
                    return (view.seat(slot),)
                late = late or view.seat(slot)
        if late is not None:
            return (late,)
    return None


def least_lost(view: View) -> Iterator[Slot]:
    """Nodes on which the worker takes the least away from what typical work could use; of equal ones as `fullest`.

    Where accelerators are all that can run out, they are all that counts.
    """
    if view.share == WHOLE and all(group.strands_none(view.gang.ask) for group, _ in view.wanted):
        return fullest(view)
    return view.pool_index.classes.order(view)


def fullest(view: View) -> Iterator[Slot]:
    """Nodes with the fewest free units first; then domains with the fewest such nodes, so that domains stay whole;
    then by name."""
    if view.share < WHOLE:
        yield from sharing(view)
    pool_index = view.pool_index
    for group, need in view.wanted:
        for bucket in range(need, group.buckets):
            if group.counts[bucket]:
                tally = pool_index.tally(((group, bucket),), pool_index.levels, exact=True)
                for _, domain in tally.order:
                    yield from _by_name(tally.cells[domain], bucket)


def emptiest(view: View) -> Iterator[Slot]:
    """Nodes with the most free units first; then domains with the most such nodes; then by name."""
    if view.share < WHOLE:
        yield from fullest(view)
    pool_index = view.pool_index
    for group, need in view.wanted:
        for bucket in range(group.buckets - 1, need - 1, -1):
            if group.counts[bucket]:
                tally = pool_index.tally(((group, bucket),), pool_index.levels, exact=True)
                first = tally.tightest(tally.most())
                for index in (*range(first, len(tally.order)), *range(first - 1, -1, -1)):
                    yield from _by_name(tally.cells[tally.order[index][1]], bucket)


def sharing(view: View) -> Iterator[Slot]:
    """Nodes with an already shared accelerator that can hold the part, tightest fit first."""
    for group, _ in view.wanted:
        for index in range(bisect_left(group.parts, (view.share,)), len(group.parts)):
            yield group.parts[index][3]


def _by_name(cells: list[Cell], bucket: int) -> Iterator[Slot]:
    if len(cells) == 1:
        return cells[0].members(cells[0].masks[bucket])
    slots = [slot for cell in cells for slot in cell.members(cell.masks[bucket])]
    return iter(sorted(slots, key=lambda slot: slot.key))
