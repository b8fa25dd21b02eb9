"""A queue: whose share it is. It belongs to a project and admits a range of priorities."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from muster.core.entities.base import EntityType, from_fields
from muster.core.payload import Payload, payload

if TYPE_CHECKING:
    from muster.core.event import Event
    from muster.core.state_data import Changes, State


@dataclass(frozen=True, slots=True)
class Queue:
    name: str
    project: str = "default"
    min_priority: int = 0
    max_priority: int = 100


QUEUES = EntityType("queue", from_fields(Queue), place=lambda state: state.queues)


@payload("queue.set")
class QueueSet(Payload):
    """A queue was made or changed: the whole record."""

    name: str
    project: str = "default"
    min_priority: int = 0
    max_priority: int = 100

    def fold(self, state: State, event: Event, changes: Changes) -> None:
        QUEUES.put(state, self.name, Queue(**self.to_doc()), changes)
        state.journal.note("entity", self.name)
