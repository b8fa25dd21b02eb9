"""Keeps the jobs of a group together: on the nodes of the others, then in the same domain, narrow before wide."""

from __future__ import annotations

from muster.core.seat import Seat
from muster.sched.place import Gang
from muster.sched.room.free import Free
from muster.sched.room.near import Scores, near
from muster.sched.room.yard import Yard


class Group:
    name = "group"

    def place(self, gang: Gang, free: Free) -> tuple[Seat, ...] | None:
        return near(gang, free, _others)


def _others(yard: Yard, names: frozenset[str]) -> Scores:
    return {yard.slots[name]: 1 for name in names if name in yard.slots}
