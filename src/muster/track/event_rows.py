"""Rows of the record that events produce, grouped by run and written with few statements."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final

from sqlalchemy import Connection, Table, bindparam, select, update

from muster.api.words import FINAL
from muster.core.attempt_events import (
    AttemptEnded,
    AttemptHung,
    AttemptMoves,
    AttemptPlanned,
    AttemptRunning,
    AttemptSteady,
    AttemptStraggler,
    CheckpointTaken,
)
from muster.core.entities.alert import AlertActed, AlertFired
from muster.core.entities.node_record import NodeCharged
from muster.core.event import SYSTEM, Event
from muster.core.job_events import (
    JobEnd,
    JobFailed,
    JobRequeued,
    JobResumed,
    JobStopped,
    JobStopping,
    JobSubmitted,
    JobSucceeded,
)
from muster.core.payload import Payload
from muster.core.record_events import RunDamaged, RunPurged
from muster.store import record_tables as tables
from muster.store.base import Record
from muster.store.codec import dumps, loads
from muster.store.insert import Row, add, put
from muster.track.child_rows import close_children
from muster.track.job_rows import JobRows
from muster.track.rows import Doc, chunks, link_row, merged, note_row
from muster.track.submitted import SubmittedJobs
from muster.track.values import PURGED, pairs

_SHOWN: Final = 8  # nodes that a logbook note names
_EACH: Final = 20  # attempts whose starts and preemptions are all noted; after them one
_ONE_IN: Final = 100


class EventRows:
    """Collects the rows. `to_check` has the runs, with their projects, whose required fields must be checked again.

    `missing` are the jobs that these events submit and that have no run in the record.
    """

    def __init__(self, jobs: JobRows, submitted: SubmittedJobs, missing: Collection[str]) -> None:
        self._job_rows, self._submitted, self._missing = jobs, submitted, missing
        self.to_check: dict[str, str] = {}
        self._runs: dict[str, None] = {}  # all runs with events, in order
        self._new: dict[str, str] = {}  # missing runs → their projects
        self._attempts: dict[tuple[str, int], None] = {}
        self._rows: defaultdict[Table, list[tuple[str, Row]]] = defaultdict(list)  # each with its run
        self._purged: list[Row] = []
        self._resumed: set[str] = set()

    def take(self, event: Event) -> None:
        """Takes an event whose payload is in `HANDLED`."""
        self._runs[event.job] = None
        _HANDLERS[type(event.data)](self, event, event.data)

    def record(self) -> Record:
        """Writes all rows, except those of purged runs."""
        docs = {key: doc for key in self._attempts if (doc := self._attempt_doc(*key))}
        jobs = [self._job_rows.jobs[run] for run in self._runs if run in self._job_rows.jobs]

        def record(connection: Connection) -> None:
            put(connection, tables.track_marks, self._purged)
            gone = _gone(connection, list(self._runs))
            for table, rows in self._rows.items():
                add(connection, table, [row for run, row in rows if run not in gone])
            _write_attempts(connection, {key: doc for key, doc in docs.items() if key[0] not in gone})
            _write_runs(connection, [job for job in jobs if job["id"] not in gone], self._resumed)

        return record

    # --- events -----------------------------------------------------------------------------------------------------

    def submitted(self, event: Event, data: JobSubmitted) -> None:
        """Adds the run's rows if they are missing: they are written with the job, unless the record is newer."""
        self.to_check[event.job] = event.project
        if event.job in self._missing:
            for table, row in self._submitted.rows_of_event(event, data, self._new):
                self._add(table, event, row)
            self._new[event.job] = event.project

    def resumed(self, event: Event, data: JobResumed) -> None:
        self._resumed.add(event.job)
        self._note(event, "restart", f"Resumed by {event.actor}.", {"reason": data.reason.to_dict()})

    def running(self, event: Event, data: Payload) -> None:
        self.touched(event, data)
        attempt = self._job_rows.attempts.get((event.job, event.attempt))
        if attempt is None or attempt.running_at != event.time:  # a late report, which is ignored
            return
        nodes, start = [worker.node for worker in attempt.workers], attempt.from_step
        if not _noted(event.attempt):
            return
        text = f"Attempt {event.attempt} runs on {_some(nodes)}{f', from step {start:,}' if start is not None else ''}."
        self._note(event, "start", text, {"attempt": event.attempt, "nodes": nodes, "from_step": start})

    def taken(self, event: Event, data: CheckpointTaken) -> None:
        """It is one of its own from here on, and made from that of the other run."""
        self.touched(event, data)
        job, source = self._job_rows.jobs.get(event.job), f"checkpoint:{data.run}/{data.step}"
        start = job["start"] if job is not None else None
        if start is None or (start["run"], start["taken"]) != (data.run, data.step):  # a late report, which is ignored
            return
        about = {"taken_from": f"{data.run}@{data.step}", "how": data.how}
        self._add(tables.links, event, link_row(source, f"run:{event.job}", "starts_from", event.time))
        self._add(tables.checkpoints, event, {
            "run": event.job, "step": data.step, "attempt": event.attempt, "path": data.path, "bytes": data.bytes,
            "time": event.time, "doc": dumps(about),
        })  # fmt: skip
        how = "shares its files" if data.how == "link" else f"has a copy of it{f': {data.why}' if data.why else ''}"
        text = f"Starts from step {data.step:,} of {data.run}, and {how}."
        self._note(event, "start", text, {"attempt": event.attempt, **data.to_doc()})

    def touched(self, event: Event, data: Payload) -> None:
        self._attempts[(event.job, event.attempt)] = None

    def hung(self, event: Event, data: AttemptHung) -> None:
        follows = "It is stopped and starts again" if data.action == "restart" else "Nothing is done about it"
        text = f"Attempt {event.attempt} hangs: {data.reason.message}. {follows}."
        self._note(event, "alert", text, data.to_doc())

    def moves(self, event: Event, data: Payload) -> None:
        self._note(event, "alert", f"Attempt {event.attempt} goes on by itself.", {"attempt": event.attempt})

    def straggler(self, event: Event, data: AttemptStraggler) -> None:
        self._note(event, "alert", f"Attempt {event.attempt} has a straggler: {data.reason.message}.", data.to_doc())

    def steady(self, event: Event, data: Payload) -> None:
        self._note(event, "alert", f"Attempt {event.attempt} has no straggler any more.", {"attempt": event.attempt})

    def stopping(self, event: Event, data: JobStopping) -> None:
        message = data.reason.message
        if data.reason.code == "hung":
            return  # the note on the hang says so
        who = "" if event.actor == SYSTEM else f" by {event.actor}"
        if data.then == "queued":
            if _noted(event.attempt):
                self._note(event, "preemption", f"Asked to make room{who}: {message}.", data.to_doc())
        else:
            self._note(event, "stop", f"Asked to stop{who}: {message}.", data.to_doc())

    def requeued(self, event: Event, data: JobRequeued) -> None:
        self.touched(event, data)
        if data.charge == "preempted" and not _noted(event.attempt):
            return
        text = f"Attempt {event.attempt} ended: {data.reason.message}. It starts again."
        if data.charge == "preempted" and event.attempt > _EACH:
            text += f" Of preemptions, one attempt in {_ONE_IN} is noted by now."
        self._note(event, "restart", text, data.to_doc())

    def charged(self, event: Event, data: NodeCharged) -> None:
        text = (
            f"The error of attempt {data.failed} is charged to node {data.name}: attempt {event.attempt} went on "
            "without that node. The job gets the restart back."
        )
        self._note(event, "system", text, data.to_doc())

    def ended(self, event: Event, data: JobEnd) -> None:
        phase, reason = data.PHASE, data.reason
        if event.attempt:
            self.touched(event, data)
        count = f" after {event.attempt} attempts" if event.attempt > 1 else ""
        text = f"{phase.capitalize()}{count}: {reason.message}."
        self._note(event, "end", text, {"phase": phase, "reason": reason.to_dict()})
        self.to_check[event.job] = event.project

    def damaged(self, event: Event, data: RunDamaged) -> None:
        self._note(event, "alert", f"{data.message[:1].upper()}{data.message[1:]}.", data.to_doc())

    def alert(self, event: Event, data: AlertFired) -> None:
        if event.job and data.severity != "info":
            self._note(event, "alert", f"Alert {data.rule}: {data.text}.", data.to_doc())

    def acted(self, event: Event, data: AlertActed) -> None:
        if event.job and data.done:
            self._note(event, "alert", f"The alert rule {data.rule} acts: {data.text}.", data.to_doc())

    def purged(self, event: Event, data: Payload) -> None:
        self._purged.append({"name": PURGED + event.job, "value": event.seq})

    # --- rows -------------------------------------------------------------------------------------------------------

    def _add(self, table: Table, event: Event, row: Row) -> None:
        self._rows[table].append((event.job, row))

    def _note(self, event: Event, kind: str, text: str, doc: Mapping[str, Any]) -> None:
        row = note_row(
            event.project, event.job, event.time, event.actor, kind, text.replace("..", "."), doc, f"event:{event.seq}"
        )
        self._add(tables.notes, event, row)

    def _attempt_doc(self, run: str, number: int) -> Doc:
        attempt = self._job_rows.attempts.get((run, number))
        if attempt is None:
            return {}
        exits = {worker.node: _exit(worker.exit) for worker in attempt.workers if worker.exit}
        return merged({}, {
            "nodes": [worker.node for worker in attempt.workers],
            "devices": [list(worker.seat.devices) for worker in attempt.workers],
            "planned_at": attempt.planned_at, "running_at": attempt.running_at, "ended_at": attempt.ended_at,
            "outcome": attempt.outcome, "reason": attempt.reason.to_dict() if attempt.reason else None,
            "from_step": attempt.from_step, "pool": attempt.pool, "exits": exits or None,
        })  # fmt: skip


def _noted(attempt: int) -> bool:
    """Whether starts and preemptions of this attempt are noted: a thousand preemptions are not a thousand notes."""
    return attempt <= _EACH or attempt % _ONE_IN == 0


def _write_runs(connection: Connection, jobs: Sequence[Doc], resumed: Collection[str]) -> None:
    """Updates the runs of these jobs to the jobs' current state."""
    runs = tables.runs
    rows = [_run_columns(job) for job in jobs]
    names = ("phase", "started_at", "ended_at", "attempts")
    values: dict[str, Any] = {name: bindparam(f"new_{name}") for name in names}
    if rows:
        connection.execute(update(runs).where(runs.c.id == bindparam("of")).values(values), rows)
    for job in jobs:
        if job["phase"] in FINAL:
            close_children(connection, job["id"], job["phase"], job["finished_at"])
    # The document is long, and only the reason of an end changes in it.
    reasons = {job["id"]: job["reason"] for job in jobs if job["phase"] in FINAL}
    reasons |= {job["id"]: None for job in jobs if job["id"] in resumed and job["phase"] not in FINAL}
    docs: list[Row] = []
    for part in chunks(list(reasons)):
        known = pairs(connection.execute(select(runs.c.id, runs.c.doc).where(runs.c.id.in_(part))))
        docs += [{"of": run, "new": dumps(merged(loads(doc), {"reason": reasons[run]}))} for run, doc in known.items()]
    if docs:
        connection.execute(update(runs).where(runs.c.id == bindparam("of")).values(doc=bindparam("new")), docs)


def _run_columns(job: Doc) -> Row:
    return {
        "of": job["id"],
        "new_phase": job["phase"],
        "new_started_at": job["started_at"],
        "new_ended_at": job["finished_at"],
        "new_attempts": job["attempt"]["number"] if job["attempt"] else 0,
    }


def _write_attempts(connection: Connection, docs: Mapping[tuple[str, int], Doc]) -> None:
    table = tables.run_attempts
    known: dict[tuple[str, int], Doc] = {}
    for part in chunks(list({run for run, _ in docs})):
        query = select(table.c.run, table.c.attempt, table.c.doc).where(table.c.run.in_(part))
        known |= {
            (run, attempt): loads(doc) for run, attempt, doc in connection.execute(query) if (run, attempt) in docs
        }
    rows = [
        {"run": run, "attempt": attempt, "doc": dumps(merged(known.get((run, attempt), {}), doc))}
        for (run, attempt), doc in docs.items()
    ]
    put(connection, table, rows, only=["doc"])


def _gone(connection: Connection, runs: Sequence[str]) -> set[str]:
    """The runs that were purged."""
    marks, found = tables.track_marks.c, set[str]()
    for part in chunks(runs):
        query = select(marks.name).where(marks.name.in_([PURGED + run for run in part]))
        found |= {name.removeprefix(PURGED) for name in connection.execute(query).scalars()}
    return found


def _exit(raw: Mapping[str, Any]) -> Doc:
    return {
        name: raw.get(name) for name in ("outcome", "reason", "detail", "rank", "exit_code", "signal", "peak_memory")
    }


def _some(nodes: Sequence[str]) -> str:
    more = f" and {len(nodes) - _SHOWN} more" if len(nodes) > _SHOWN else ""
    return ", ".join(nodes[:_SHOWN]) + more


_HANDLERS: Final[dict[type[Payload], Callable[[EventRows, Event, Any], None]]] = {
    JobSubmitted: EventRows.submitted,
    JobResumed: EventRows.resumed,
    AttemptPlanned: EventRows.touched,
    AttemptRunning: EventRows.running,
    AttemptEnded: EventRows.touched,
    AttemptHung: EventRows.hung,
    AttemptMoves: EventRows.moves,
    AttemptStraggler: EventRows.straggler,
    AttemptSteady: EventRows.steady,
    JobStopping: EventRows.stopping,
    JobRequeued: EventRows.requeued,
    NodeCharged: EventRows.charged,
    CheckpointTaken: EventRows.taken,
    JobSucceeded: EventRows.ended,
    JobFailed: EventRows.ended,
    JobStopped: EventRows.ended,
    RunDamaged: EventRows.damaged,
    AlertFired: EventRows.alert,
    AlertActed: EventRows.acted,
    RunPurged: EventRows.purged,
}
HANDLED: Final = frozenset(_HANDLERS)
