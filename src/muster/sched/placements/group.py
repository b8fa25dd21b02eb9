"""Group placement: keeps the jobs of a group together, on the same nodes, then in the same domain, narrowest first."""

from __future__ import annotations

from muster.core.seat import Seat
from muster.sched.capacity.free import Free
from muster.sched.capacity.near import Scores, near
from muster.sched.capacity.pool_index import PoolIndex
from muster.sched.place import GangRequest


class Group:
    name = "group"

    def place(self, gang: GangRequest, free: Free) -> tuple[Seat, ...] | None:
        return near(gang, free, _others)


def _others(pool_index: PoolIndex, names: frozenset[str]) -> Scores:
    return {pool_index.slots[name]: 1 for name in names if name in pool_index.slots}
