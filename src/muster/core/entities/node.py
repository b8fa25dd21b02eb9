"""A node: one machine, what is free on it, and its health."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING

from muster.api.words import Health, NodeRole
from muster.core.entities.base import EntityType
from muster.core.entities.node_record import count_failure, note_node
from muster.core.payload import Doc, Payload, payload
from muster.core.resources import WHOLE, Resources
from muster.core.seat import Seat

if TYPE_CHECKING:
    from muster.core.event import Event
    from muster.core.state_data import Changes, State

ENGINE = "engine"  # the value of `Node.by` when the engine found the node unhealthy; it may find it healthy again
SPOT = "spot notice"  # the value of `Node.by` when a launcher was told that the machine is taken away
CHECKS = "checks"  # the value of `Node.by` when a check before a start failed, or the time after one is over


@dataclass(slots=True)
class Node:
    name: str
    pool: str
    total: Resources
    labels: dict[str, str] = field(default_factory=dict)
    health: Health = "healthy"
    why: str = ""  # why the health is not healthy
    role: NodeRole = (
        "node"  # `slot`: a place in the queue of an engine that chooses the machines; `machine`: one of those
    )
    by: str = ""  # who set its health: ENGINE or a user
    free: Resources = field(default_factory=Resources)
    free_devices: int = 0  # bit i is set when accelerator i is completely free
    parts: dict[int, int] = field(default_factory=dict)  # shared accelerators → thousandths left of each
    jobs: set[str] = field(default_factory=set)

    def clear(self) -> None:
        """Sets everything free, as if no job held anything here."""
        self.free, self.free_devices = self.total, (1 << self.total.accelerators) - 1
        self.parts, self.jobs = {}, set()

    def take(self, seat: Seat, ask: Resources) -> None:
        if seat.share < WHOLE:
            ask = replace(ask, accelerators=self._take_part(seat.devices[0], seat.share))
        else:
            self.free_devices &= ~_mask(seat.devices)
        self.free = self.free - ask

    def give(self, seat: Seat, ask: Resources) -> None:
        if seat.share < WHOLE:
            ask = replace(ask, accelerators=self._give_part(seat.devices[0], seat.share))
        else:
            self.free_devices |= _mask(seat.devices)
        self.free = self.free + ask

    def _take_part(self, device: int, share: int) -> int:
        """The number of whole accelerators that this takes: 1 for the first part of an accelerator, else 0."""
        fresh = device not in self.parts
        self.parts[device] = self.parts.get(device, WHOLE) - share
        self.free_devices &= ~(1 << device)
        return int(fresh)

    def _give_part(self, device: int, share: int) -> int:
        left = self.parts.get(device, 0) + share
        if left < WHOLE:
            self.parts[device] = left
            return 0
        self.parts.pop(device, None)
        self.free_devices |= 1 << device
        return 1

    def to_doc(self) -> Doc:
        """What is stored. What is free follows from the jobs."""
        return {
            "name": self.name,
            "pool": self.pool,
            "total": asdict(self.total),
            "labels": self.labels,
            "health": self.health,
            "why": self.why,
            "role": self.role,
            "by": self.by,
        }

    @classmethod
    def from_doc(cls, doc: Doc) -> Node:
        node = cls(doc["name"], doc["pool"], Resources(**doc["total"]), doc["labels"], doc["health"], doc["why"])
        node.role, node.by = doc.get("role", "node"), doc.get("by", "")
        return node


class _NodeType(EntityType[Node]):
    def all(self, state: State) -> Mapping[str, Node]:
        return {**state.nodes, **state.machines}

    def load(self, state: State, name: str, entity: Node) -> None:
        state.add_node(entity)

    def drop(self, state: State, name: str, changes: Changes) -> None:
        state.drop_node(name)
        changes.entities[(self.kind, name)] = None


NODES = _NodeType("node", Node.from_doc, encode=Node.to_doc)


@payload("node.joined")
class NodeJoined(Payload):
    """A node is new or has changed. `role` is "slot" or "machine" if it is not a plain node."""

    name: str
    pool: str
    resources: Resources
    labels: dict[str, str]
    role: NodeRole = "node"

    def fold(self, state: State, event: Event, changes: Changes) -> None:
        node, old = (
            Node(self.name, self.pool, self.resources, dict(self.labels), role=self.role),
            state.find_node(self.name),
        )
        if old is not None:
            node.health, node.why, node.by = old.health, old.why, old.by
        NODES.put(state, self.name, node, changes)


@payload("node.left")
class NodeLeft(Payload):
    """A node is gone."""

    name: str

    def fold(self, state: State, event: Event, changes: Changes) -> None:
        NODES.drop(state, self.name, changes)


@payload("node.health")
class NodeHealth(Payload):
    """The health of a node changed. `by` is "engine" if the engine found it, "checks" if a check did, and null if the
    actor set it."""

    name: str
    health: Health
    reason: str
    by: str | None = None

    def fold(self, state: State, event: Event, changes: Changes) -> None:
        node = state.find_node(self.name)
        if node is None:
            return
        by = event.actor if self.by is None else self.by
        if (node.health, node.why, node.by) != (self.health, self.reason, by):
            kind = self.health if self.health != "healthy" or node.health == "healthy" else "released"
            note_node(state, self.name, event, kind, self.reason, changes)
        node.health, node.why, node.by = self.health, self.reason, by
        state.journal.note("node", node.name)
        changes.entities[(NODES.kind, node.name)] = node


@payload("node.slow")
class NodeSlow(Payload):
    """Several programs had stragglers on a node and nowhere else: it is drained for a while, and then checked.

    `programs`: as project/user/name.
    """

    name: str
    reason: str
    programs: list[str]

    def fold(self, state: State, event: Event, changes: Changes) -> None:
        NodeHealth(self.name, "draining", self.reason, CHECKS).fold(state, event, changes)
        count_failure(state, self.name, "straggler_node", event, self.reason, changes)


def _mask(devices: tuple[int, ...]) -> int:
    return sum([1 << device for device in devices])
