"""The failures of a node, by cause. The record outlives the node, so that one which leaves and returns keeps it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from muster.core.entities.base import EntityType, from_fields
from muster.core.payload import Payload, payload
from muster.core.seat import is_slot

if TYPE_CHECKING:
    from muster.core.event import Event
    from muster.core.state_data import Changes, State

RECORDS_MAX: Final = 10_000  # nodes; the one whose last failure is the oldest is dropped for another


@dataclass(slots=True)
class NodeRecord:
    name: str
    failures: dict[str, int] = field(default_factory=dict)  # by reason
    last: float = 0.0  # when it last failed, in seconds since 1970

    @property
    def count(self) -> int:
        return sum(self.failures.values())


NODE_RECORDS = EntityType("node_record", from_fields(NodeRecord))


def count_failure(state: State, node: str, code: str, time: float, changes: Changes) -> None:
    """Adds a failure to the record of a node. A place in an engine's queue has none."""
    if not node or is_slot(node):
        return
    known = NODE_RECORDS.all(state)
    before = known.get(node)
    if before is None and len(known) >= RECORDS_MAX:
        oldest = min(known.values(), key=lambda record: (record.last, record.name))
        NODE_RECORDS.drop(state, oldest.name, changes)
    failures = dict(before.failures) if before is not None else {}
    failures[code] = failures.get(code, 0) + 1
    NODE_RECORDS.put(state, node, NodeRecord(node, failures, time), changes)


@payload("node.charged")
class NodeCharged(Payload):
    """An error of the job is charged to a node: an attempt without the node went beyond the step of the error.

    `failed` is the attempt with the error, `cause` its reason. The job gets the restart back.
    """

    name: str
    failed: int
    cause: str

    def fold(self, state: State, event: Event, changes: Changes) -> None:
        count_failure(state, self.name, self.cause, event.time, changes)
        job = state.jobs.get(event.job)
        error = job.repair.error if job is not None else None
        if job is None or error is None or error.attempt != self.failed:
            return
        job.charges = {**job.charges, error.charge: max(0, job.charges.get(error.charge, 0) - 1)}
        job.repair = replace(job.repair, error=None)
        changes.jobs[job.id] = job
