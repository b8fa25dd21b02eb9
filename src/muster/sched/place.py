"""The placement seam: a whole gang onto nodes, or nothing."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, Protocol

from muster.core.resources import Resources
from muster.core.seat import Seat

if TYPE_CHECKING:
    from muster.sched.capacity.free import Free


@dataclass(frozen=True, slots=True)
class Gang:
    """What a placement needs to know of a job."""

    ask: Resources  # of each worker
    nodes: int  # workers, each on a node of its own
    pools: tuple[str, ...]  # where it may go, the preferred first; never several pools at once
    placement: str = "pack"
    require: str | None = None  # the label that all its nodes must share
    prefer: str | None = None  # the label that they share if that can be had
    near: frozenset[str] = frozenset()  # names that nodes hold, or nodes themselves, for `group` and `locality`
    avoid: frozenset[str] = frozenset()  # nodes that are taken last: the job failed there
    ends: float = -inf  # when it is expected to be done: nodes that close before are left out

    def within(self, pool: str, nodes: int) -> Gang:
        """The same in one pool, with so many workers."""
        return Gang(
            self.ask, nodes, (pool,), self.placement, self.require, self.prefer, self.near, self.avoid, self.ends
        )


class Placement(Protocol):
    """All or nothing; never oversubscribes."""

    name: str

    def place(self, gang: Gang, free: Free) -> tuple[Seat, ...] | None:
        """A seat on a node of its own for every worker. Takes nothing: the caller does, with `free.take`."""
