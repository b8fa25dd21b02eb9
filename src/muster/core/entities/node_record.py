"""What happened to a node: its failures by cause, jobs that were slow there, and its history.

The record outlives the node, so that one which leaves and returns keeps it.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from muster.core.entities.base import EntityType, from_fields
from muster.core.payload import Doc, Payload, payload
from muster.core.seat import is_slot

if TYPE_CHECKING:
    from muster.core.event import Event
    from muster.core.state_data import Changes, State

RECORDS_MAX: Final = 10_000  # nodes; the one whose last failure is the oldest is dropped for another
HISTORY: Final = 100  # entries of a node, the newest
SLOW: Final = 16  # programs that had a straggler on a node, the newest
TEXT: Final = 500  # characters of an entry
FAULTS: Final = 64  # devices and codes of a node whose faults are counted; further ones count as `other` of the device
FAULT_MARKS: Final = 64  # the newest faults of a node that are recognised when they come again
FAULT_NOTED: Final = 3600.0  # seconds until the same fault is noted in the history again


@dataclass(slots=True)
class NodeRecord:
    name: str
    failures: dict[str, int] = field(default_factory=dict)  # by reason
    last: float = 0.0  # when it last failed, in seconds since 1970
    slow: dict[str, float] = field(default_factory=dict)  # programs whose ranks were stragglers here → when
    # Oldest first: {"seq", "time", "kind", "text", "job", "project", "actor"}.
    history: list[dict[str, Any]] = field(default_factory=list)
    faults: dict[str, int] = field(default_factory=dict)  # "index of the device/code" → how many
    fault_marks: list[tuple[str, float]] = field(default_factory=list)  # the newest faults and when they came

    @property
    def count(self) -> int:
        return sum(self.failures.values())


NODE_RECORDS = EntityType("node_record", from_fields(NodeRecord))


def count_failure(state: State, node: str, code: str, event: Event, text: str, changes: Changes) -> None:
    """Adds a failure to the record of a node. A place in an engine's queue has none."""
    record = note_node(state, node, event, code, text, changes)
    if record is not None:
        record.failures = {**record.failures, code: record.failures.get(code, 0) + 1}
        record.last = event.time


def note_node(state: State, node: str, event: Event, kind: str, text: str, changes: Changes) -> NodeRecord | None:
    """Adds an entry to the history of a node, and returns the new record."""
    if not node or is_slot(node):
        return None
    known = NODE_RECORDS.all(state)
    before = known.get(node)
    if before is None and len(known) >= RECORDS_MAX:
        oldest = min(known.values(), key=lambda record: (record.last, record.name))
        NODE_RECORDS.drop(state, oldest.name, changes)
    entry = {
        "seq": event.seq,
        "time": event.time,
        "kind": kind,
        "text": text[:TEXT],
        "job": event.job,
        "project": event.project,
        "actor": event.actor,
    }
    record = replace(before, history=[*before.history[1 - HISTORY :], entry]) if before else NodeRecord(node)
    record.history = record.history or [entry]
    NODE_RECORDS.put(state, node, record, changes)
    return record


def note_slow(state: State, node: str, program: str, event: Event, text: str, changes: Changes) -> None:
    """Notes that ranks of a program were stragglers on a node. `program` is empty if the evidence is weak."""
    record = note_node(state, node, event, "straggler", text, changes)
    if record is not None and program:
        others = {one: time for one, time in record.slow.items() if one != program}
        record.slow = {**dict(list(others.items())[1 - SLOW :]), program: event.time}


def follows_node(state: State, node: str, since: float) -> tuple[str, ...]:
    """The programs that were slow on this node and on no other, if there are two or more: then it is the node's."""
    records = NODE_RECORDS.all(state)
    if node not in records:
        return ()
    elsewhere = {
        one for record in records.values() if record.name != node for one, at in record.slow.items() if at >= since
    }
    found = tuple(one for one, at in records[node].slow.items() if at >= since and one not in elsewhere)
    return found if len(found) > 1 else ()


@payload("node.charged")
class NodeCharged(Payload):
    """An error of the job is charged to a node: an attempt without the node went beyond the step of the error.

    `failed` is the attempt with the error, `cause` its reason. The job gets the restart back.
    """

    name: str
    failed: int
    cause: str

    def fold(self, state: State, event: Event, changes: Changes) -> None:
        text = f"the error of attempt {self.failed} is charged to it"
        count_failure(state, self.name, self.cause, event, text, changes)
        job = state.jobs.get(event.job)
        error = job.repair.error if job is not None else None
        if job is None or error is None or error.attempt != self.failed:
            return
        job.charges = {**job.charges, error.charge: max(0, job.charges.get(error.charge, 0) - 1)}
        job.repair = replace(job.repair, error=None)
        changes.jobs[job.id] = job


@payload("node.checked")
class NodeChecked(Payload):
    """An administrator had a node checked: what each check found. Without findings, and after a failed one, the node is
    checked before the next start there."""

    name: str
    findings: list[Doc]

    def fold(self, state: State, event: Event, changes: Changes) -> None:
        failed = [f"{one['check']}: {one['detail']}" for one in self.findings if one["status"] == "failed"]
        unknown = sum(one["status"] == "unknown" for one in self.findings)
        if not self.findings:
            record = note_node(state, self.name, event, "check_asked", "before the next start there", changes)
            if record is not None:
                record.last = event.time  # so that it counts as one that failed lately
        elif failed:
            count_failure(state, self.name, "node_check_failed", event, "; ".join(failed), changes)
        else:
            text = f"{len(self.findings) - unknown} checks found no fault, {unknown} are unknown"
            note_node(state, self.name, event, "checked", text, changes)


@payload("node.fault")
class NodeFault(Payload):
    """The driver of an accelerator reported a fault: an Xid by its code, or `ecc` for memory errors that it could not
    correct. It does not change the node's health.

    `number`: of the entry in the kernel's log of this `boot`; of `ecc`, the errors since the driver was loaded.
    """

    name: str
    gpu: int
    code: str
    number: int
    boot: str

    @property
    def mark(self) -> str:
        return f"{self.gpu}/{self.code}/{self.number}/{self.boot}"

    def fold(self, state: State, event: Event, changes: Changes) -> None:
        known, key = NODE_RECORDS.all(state).get(self.name), f"{self.gpu}/{self.code}"
        marks = known.fault_marks if known is not None else []
        if known is None or not any(m.startswith(f"{key}/") and event.time - at < FAULT_NOTED for m, at in marks):
            what = f"Xid {self.code}" if self.code.isdigit() else "memory errors that could not be corrected"
            known = note_node(state, self.name, event, "fault", f"{what} of accelerator {self.gpu}", changes)
        if known is None:
            return
        key = key if key in known.faults or len(known.faults) < FAULTS else f"{self.gpu}/other"
        faults = {**known.faults, key: known.faults.get(key, 0) + 1}
        kept = [*known.fault_marks[1 - FAULT_MARKS :], (self.mark, event.time)]
        NODE_RECORDS.put(state, self.name, replace(known, faults=faults, fault_marks=kept), changes)


@payload("node.finding")
class NodeFinding(Payload):
    """What was seen of a node while jobs ran there, such as that its clock is wrong. It does not change its health."""

    name: str
    check: str
    text: str

    def fold(self, state: State, event: Event, changes: Changes) -> None:
        note_node(state, self.name, event, self.check, self.text, changes)
