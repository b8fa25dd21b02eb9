"""Goes where the data is: the nodes that hold the most of it, or are named, then those around them."""

from __future__ import annotations

from muster.core.seat import Seat
from muster.sched.place import Gang
from muster.sched.room.free import Free
from muster.sched.room.near import Scores, near
from muster.sched.room.slot import Slot
from muster.sched.room.yard import Yard


class Locality:
    name = "locality"

    def place(self, gang: Gang, free: Free) -> tuple[Seat, ...] | None:
        return near(gang, free, _holders)


def _holders(yard: Yard, names: frozenset[str]) -> Scores:
    """How many of the names each node holds, itself among them."""
    scores: dict[Slot, int] = {}
    for name in names:
        holders = dict(yard.holders.get(name, {}))
        if name in yard.slots:
            holders[name] = yard.slots[name]
        for slot in holders.values():
            scores[slot] = scores.get(slot, 0) + 1
    return scores
