"""Nodes of a pool by what their free capacity is worth, and the order in which a single worker tries them.

Nodes with the same hardware and the same key (`worth.Key`) are one grade, and are treated alike. What a request costs
in worth is computed once for each grade and kept in the request's `Row`, so that the cost of a placement grows with the
number of different grades and not with that of nodes. Everything catches up with what has changed when it is next used.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterator
from itertools import islice
from math import inf
from typing import TYPE_CHECKING, Final

from muster.core.entities.demand import UNKNOWN, Typical
from muster.core.resources import WHOLE, Resources
from muster.sched.capacity.worth import Key, Make

if TYPE_CHECKING:
    from muster.sched.capacity.cells import Cell, Group
    from muster.sched.capacity.pool_index import PoolIndex
    from muster.sched.capacity.slot import Slot
    from muster.sched.capacity.view import View

ROWS: Final = 128  # requests whose order is kept; the one that was not asked for for the longest time is dropped
LOG: Final = 8192  # places that came to have nodes, which rows may yet have to catch up with
STALE: Final = 64  # empty places that a row passes before it forgets them
TRIED: Final = 8  # nodes of a place that are tried first where some of its nodes can't hold the ask
STEP_UP: Final = 0.05  # worth that an accelerator with more memory than the least that suits costs, per size

Rank = tuple[float, int, int, int, tuple[int, ...], Key]


class Place:
    """Nodes of one group, make and key that have this much left: of a shared accelerator, or WHOLE ones."""

    __slots__ = ("changed", "group", "key", "left", "make", "masks")

    def __init__(self, group: Group, make: Make, key: Key, left: int) -> None:
        self.group, self.make, self.key, self.left = group, make, key, left
        self.masks: dict[Cell, int] = {}  # its nodes, as bits
        self.changed = 0  # a counter that rises when one of them changes or joins


class Row:
    """The places that may hold a request, the least loss of worth first."""

    __slots__ = ("failed", "known", "order", "seen")

    def __init__(self) -> None:
        self.failed: dict[Place, int] = {}  # places none of whose nodes could hold it, when they last `changed`
        self.known: set[Place] = set()
        self.order: list[tuple[Rank, Place]] = []
        self.seen = -1  # the count of `Grades.log` up to which it has caught up


class Grades:
    """The index of one pool."""

    __slots__ = ("_dirty", "_log", "_logged", "_makes", "_places", "_rows", "_typical")

    def __init__(self) -> None:
        self._typical = UNKNOWN
        self._dirty: dict[Slot, None] = {}
        self.clear()

    def use(self, typical: Typical) -> bool:
        """Typical requests from now on. If they are others, it forgets all nodes, and the owner touches them anew."""
        if typical is self._typical:
            return False
        self._typical = typical
        self.clear()
        return True

    def clear(self) -> None:
        """Forgets all nodes. The owner touches them anew."""
        self._makes: dict[Resources, Make] = {}
        self._places: dict[tuple[Group, Make, Key, int], Place] = {}
        self._rows: dict[tuple[Resources, int], Row] = {}
        self._log: list[Place] = []
        self._logged = 0  # entries of the log that were dropped

    def touch(self, slot: Slot) -> None:
        """Something changed on the node."""
        self._dirty[slot] = None

    def forget(self, cell: Cell) -> None:
        """The nodes of the cell are numbered anew."""
        for place in self._places.values():
            place.masks.pop(cell, None)
        for slot in cell.slots:
            slot.places = ()
            self._dirty[slot] = None

    def order(self, view: View) -> Iterator[Slot]:
        """Nodes that may hold a worker, the least loss first; sets `view.left` to what the worker is to use there."""
        pool_index = view.pool_index
        if self._dirty:
            self._catch_up(pool_index)
        gang, row = view.gang, self._row(view)
        failed = {} if gang.avoid or gang.require or view.kept or gang.ends > -inf else row.failed
        late = []
        for place in self._live(row):
            if failed.get(place) == place.changed:
                continue
            view.left = place.left
            slots = _members(pool_index, place)
            first = list(islice(slots, TRIED))
            yield from first
            if len(first) == TRIED and not place.make.surely_holds(place.key, gang.ask):
                late.append((place, slots))
                continue
            yield from slots
            failed[place] = place.changed
        for place, slots in late:
            view.left = place.left
            yield from slots
            failed[place] = place.changed

    def _live(self, row: Row) -> Iterator[Place]:
        passed = 0
        for _, place in row.order:
            if place.masks:
                yield place
            else:
                passed += 1
                if passed > STALE:
                    break
        if passed > STALE:
            rest = [place for _, place in row.order if place.masks]
            row.order = [entry for entry in row.order if entry[1].masks]
            row.known = set(rest)
            row.failed.clear()
            yield from rest

    def _row(self, view: View) -> Row:
        ask = view.gang.ask
        key = (ask, view.share)
        row = self._rows.pop(key, None)
        if row is None:
            row = Row()
            if len(self._rows) >= ROWS:
                del self._rows[next(iter(self._rows))]
        self._rows[key] = row
        end = self._logged + len(self._log)
        if row.seen < self._logged:
            row.known.clear()
            row.order.clear()
            row.failed.clear()
            new = [place for place in self._places.values() if place.masks]
        else:
            new = self._log[row.seen - self._logged :]
        if new:
            self._add(row, view, new)
        row.seen = end
        return row

    def _add(self, row: Row, view: View, new: list[Place]) -> None:
        ask, share, known = view.gang.ask, view.share, row.known
        parts = share < WHOLE and ask.accelerators > 0
        new = [
            place for place in dict.fromkeys(new)
            if (parts or place.left == WHOLE) and place not in known and place.group in view.needs
        ]  # fmt: skip
        known.update(new)
        new = [place for place in new if place.make.may_hold(place.key, place.left, ask, share)]
        if not new:
            return
        orders = {group: index for index, (group, _) in enumerate(view.wanted)}
        sizes = sorted({group.kind[1] for group in orders})
        many = len(new) > max(8, len(row.order) // 8)
        for place in new:
            make, key = place.make, place.key
            loss = make.loss(key, place.left, ask, share)
            loss += STEP_UP * sizes.index(place.group.kind[1]) * ask.weight
            bucket = key[0] if make.total.accelerators else key[1]
            left = place.left if parts else 0  # of shared accelerators the tightest fit, before whole ones
            rank = (round(loss, 9), orders[place.group], left, bucket, make.order, key)
            if many:
                row.order.append((rank, place))
            else:
                insort(row.order, (rank, place), key=_rank)
        if many:
            row.order.sort(key=_rank)

    def _catch_up(self, pool_index: PoolIndex) -> None:
        slots = pool_index.slots
        for slot in self._dirty:
            if slots.get(slot.name) is not slot:
                continue  # it is gone, and its cell was forgotten
            wanted = self._places_of(slot)
            if wanted != slot.places:
                cell, bit = slot.cell, slot.bit
                for place in slot.places:
                    if place not in wanted:
                        rest = place.masks[cell] ^ bit
                        if rest:
                            place.masks[cell] = rest
                        else:
                            del place.masks[cell]
                for place in wanted:
                    if place not in slot.places:
                        if not place.masks:
                            self._log.append(place)
                        place.masks[cell] = place.masks.get(cell, 0) | bit
                slot.places = wanted
            for place in wanted:
                place.changed += 1
        self._dirty.clear()
        if len(self._log) > LOG:
            self._logged += len(self._log)
            self._log.clear()
            self._places = {key: place for key, place in self._places.items() if place.masks}

    def _places_of(self, slot: Slot) -> tuple[Place, ...]:
        if not slot.healthy:
            return ()
        make = self._makes.get(slot.total)
        if make is None:
            make = self._makes[slot.total] = Make(slot.total, self._typical.shapes)
        group = slot.cell.group
        if not slot.parts:
            return (self._place(group, make, make.key(slot.mask.bit_count(), slot.cpu, slot.memory, 0), WHOLE),)
        lefts = set(slot.parts.values())
        key = make.key(slot.mask.bit_count(), slot.cpu, slot.memory, sum(slot.parts.values()))
        lefts.discard(0)
        return tuple([self._place(group, make, key, left) for left in (*sorted(lefts), WHOLE)])

    def _place(self, group: Group, make: Make, key: Key, left: int) -> Place:
        name = (group, make, key, left)
        found = self._places.get(name)
        if found is None:
            found = self._places[name] = Place(group, make, key, left)
        return found


def _rank(entry: tuple[Rank, Place]) -> Rank:
    return entry[0]


def _members(pool_index: PoolIndex, place: Place) -> Iterator[Slot]:
    """The nodes of a place: domains with the fewest equally free nodes first, so that domains stay whole; then by
    name."""
    masks = place.masks
    if len(masks) == 1:
        [(cell, mask)] = masks.items()
        yield from cell.members(mask)
        return
    group = place.group
    bucket = place.key[0] if place.make.total.accelerators else place.key[1]
    tally = pool_index.tally(((group, bucket),), pool_index.levels, exact=True)
    for _, domain in tally.order:
        cells = [cell for cell in tally.cells[domain] if cell in masks]
        if len(cells) == 1:
            yield from cells[0].members(masks[cells[0]])
        elif cells:
            slots = [slot for cell in cells for slot in cell.members(masks[cell])]
            yield from sorted(slots, key=lambda slot: slot.key)
