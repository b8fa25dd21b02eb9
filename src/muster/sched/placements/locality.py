"""Locality placement: nodes that hold the most of the wanted data, or are named, then nodes in the same domains."""

from __future__ import annotations

from muster.core.seat import Seat
from muster.sched.capacity.free import Free
from muster.sched.capacity.near import Scores, near
from muster.sched.capacity.pool_index import PoolIndex
from muster.sched.capacity.slot import Slot
from muster.sched.place import GangRequest


class Locality:
    name = "locality"

    def place(self, gang: GangRequest, free: Free) -> tuple[Seat, ...] | None:
        return near(gang, free, _holders)


def _holders(pool_index: PoolIndex, names: frozenset[str]) -> Scores:
    """How many of the names each node holds; its own name counts too."""
    scores: dict[Slot, int] = {}
    for name in names:
        holders = dict(pool_index.holders.get(name, {}))
        if name in pool_index.slots:
            holders[name] = pool_index.slots[name]
        for slot in holders.values():
            scores[slot] = scores.get(slot, 0) + 1
    return scores
