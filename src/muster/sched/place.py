"""The placement interface: put a whole gang on nodes, or return nothing."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, Protocol

from muster.core.resources import Resources
from muster.core.seat import Seat

if TYPE_CHECKING:
    from muster.sched.capacity.free import Free


@dataclass(frozen=True, slots=True)
class GangRequest:
    """What a placement needs to know about a job."""

    ask: Resources  # of each worker
    nodes: int  # workers, each on a different node
    pools: tuple[str, ...]  # allowed pools, preferred first; all workers are in one pool
    placement: str = "pack"
    require: str | None = None  # the label that all its nodes must share
    prefer: str | None = None  # the label that all its nodes should share if possible
    near: frozenset[str] = frozenset()  # node names, or data names that nodes hold, for `group` and `locality`
    avoid: frozenset[str] = frozenset()  # nodes that are used last: the job failed there
    ends: float = -inf  # expected end: nodes that close before it are left out
    spares: str = ""  # the pool whose spares it may use

    def within(self, pool: str, nodes: int) -> GangRequest:
        """The same gang in one pool, with `nodes` workers."""
        return GangRequest(
            self.ask, nodes, (pool,), self.placement, self.require, self.prefer, self.near, self.avoid, self.ends,
            self.spares,
        )  # fmt: skip


class Placement(Protocol):
    """A placement strategy. It places all workers of a gang or none, and never oversubscribes a node."""

    name: str

    def place(self, gang: GangRequest, free: Free) -> tuple[Seat, ...] | None:
        """One seat for every worker, each on a different node; None if it does not fit.

        Does not change `free`: the caller takes the seats with `free.take`.
        """
