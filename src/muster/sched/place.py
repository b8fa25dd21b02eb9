"""The placement seam, and the view of free resources that a round plans on without touching the state."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from muster.core.estate import Node
from muster.core.job import Job, Seat
from muster.core.resources import Resources
from muster.core.state import State


class Free:
    """What is free on every node, less what this round has given away already."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._taken: dict[str, tuple[Resources, int]] = {}  # node → what is left of it, and its free devices

    def left(self, node: Node) -> Resources:
        taken = self._taken.get(node.name)
        return taken[0] if taken else node.free

    def candidates(self, job: Job) -> Iterator[Node]:
        """The nodes that could take a worker of the job now."""
        pool = job.spec.pool
        for node in self._state.nodes.values():
            if node.health == "healthy" and (pool is None or node.pool == pool) and self.left(node).holds(job.ask):
                yield node

    def seat(self, node: Node, job: Job) -> Seat:
        """Takes one worker's share of the node, lowest device numbers first."""
        left, mask = self._taken.get(node.name, (node.free, node.free_devices))
        devices = []
        for _ in range(job.ask.accelerators):
            lowest = mask & -mask
            devices.append(lowest.bit_length() - 1)
            mask ^= lowest
        self._taken[node.name] = (left - job.ask, mask)
        return Seat(node.name, tuple(devices))


class Placement(Protocol):
    """All or nothing; never oversubscribes."""

    name: str

    def place(self, job: Job, free: Free) -> tuple[Seat, ...] | None:
        """A seat on a node of its own for every worker, taken from `free`; None, with nothing taken, if not."""
