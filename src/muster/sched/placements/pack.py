"""Pack placement: the fullest node, or the tightest domain, that holds the gang, so that empty ones stay whole."""

from __future__ import annotations

from muster.core.seat import Seat
from muster.sched.capacity.free import Free
from muster.sched.capacity.gather import pack
from muster.sched.place import GangRequest


class Pack:
    name = "pack"

    def place(self, gang: GangRequest, free: Free) -> tuple[Seat, ...] | None:
        return pack(gang, free)
