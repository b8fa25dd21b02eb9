"""Balanced placement: always the domain with the largest free fraction next, and in it the least used node."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from muster.core.resources import WHOLE
from muster.core.seat import Seat
from muster.sched.capacity.cells import Cell
from muster.sched.capacity.deal import Branch, deal, dealt
from muster.sched.capacity.free import Free
from muster.sched.capacity.single import fullest, single
from muster.sched.capacity.slot import Slot
from muster.sched.capacity.view import View, views
from muster.sched.place import GangRequest


class Balanced:
    """Requests for a part of an accelerator are placed as by `pack`, so that free accelerators stay whole."""

    name = "balanced"

    def place(self, gang: GangRequest, free: Free) -> tuple[Seat, ...] | None:
        if gang.nodes == 1:
            return single(gang, free, _order)
        found = (deal(view, gang, _turn, _rank) for view in views(gang, free))
        return next((seats for seats in found if seats is not None), None)


def _order(view: View) -> Iterator[Slot]:
    return fullest(view) if view.share < WHOLE else dealt(view, view.cells(), _turn, _rank)


def _turn(branch: Branch) -> tuple[float, float]:
    return -branch.part(), branch.dealt


def _rank(view: View, cells: Sequence[Cell]) -> Iterable[Slot]:
    slots = [slot for cell in cells for slot in cell.members(view.mask(cell))]
    return sorted(slots, key=lambda slot: (slot.name in view.gang.avoid, -slot.room / (slot.size or 1), slot.key))
