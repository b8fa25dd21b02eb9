"""Spread placement: the emptiest nodes, over as many domains as possible, to limit the effect of one failure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from muster.core.seat import Seat
from muster.sched.capacity.cells import Cell
from muster.sched.capacity.deal import Branch, deal
from muster.sched.capacity.free import Free
from muster.sched.capacity.single import emptiest, single
from muster.sched.capacity.slot import Slot
from muster.sched.capacity.view import View, views
from muster.sched.place import GangRequest


class Spread:
    """Requests for a part of an accelerator are placed as by `pack`: spreading them would split one on every node."""

    name = "spread"

    def place(self, gang: GangRequest, free: Free) -> tuple[Seat, ...] | None:
        if gang.nodes == 1:
            return single(gang, free, emptiest)
        found = (deal(view, gang, _turn, _rank) for view in views(gang, free))
        return next((seats for seats in found if seats is not None), None)


def _turn(branch: Branch) -> tuple[float, float]:
    return branch.dealt, -branch.count()


def _rank(view: View, cells: Sequence[Cell]) -> Iterable[Slot]:
    return view.ranked(cells, emptiest=True)
