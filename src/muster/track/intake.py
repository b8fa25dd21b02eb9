"""Writes a worker's batch to the record: points, documents and, for a run that isn't a job, its end."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from sqlalchemy import Connection, select

from muster.api.words import FINAL
from muster.core.event import SYSTEM
from muster.core.reasons import REASONS
from muster.store import record_tables as tables
from muster.store.base import Record, StreamWrite
from muster.store.insert import add
from muster.track.artifacts import Artifacts
from muster.track.child_rows import children_records, close_children, take_children
from muster.track.document_rows import read_documents
from muster.track.goodput_rows import stale_record
from muster.track.holders import Holder
from muster.track.metrics import Metrics
from muster.track.origins import Origins
from muster.track.phase_rows import phases_record, take_phases
from muster.track.record_db import RecordDb
from muster.track.required import Required
from muster.track.rows import Doc, note_row, patch_attempt, patch_run, read_run
from muster.track.values import PURGED
from muster.wire import Batch, WorkerExit

_KNOWN: Final = 8192  # attempts that are cached


class PurgedRuns(Protocol):
    """Knows which runs were purged."""

    def __contains__(self, run: object) -> bool: ...


@dataclass(slots=True)
class Purged:
    """The purged runs: a set in memory, loaded from `track_marks`."""

    db: RecordDb
    _runs: set[str] | None = None

    def __contains__(self, run: object) -> bool:
        return run in self._all()

    def add(self, run: str) -> None:
        self._all().add(run)

    def discard(self, run: str) -> None:
        self._all().discard(run)

    def _all(self) -> set[str]:
        if self._runs is None:
            marks = tables.track_marks.c
            with self.db.reading() as connection:
                names = connection.execute(select(marks.name).where(marks.name.startswith(PURGED))).scalars()
                self._runs = {name.removeprefix(PURGED) for name in names}
        return self._runs


class Intake:
    def __init__(
        self,
        db: RecordDb,
        metrics: Metrics,
        artifacts: Artifacts,
        required: Required,
        purged: PurgedRuns,
        origins: Origins,
    ) -> None:
        self._db, self._metrics, self._artifacts = db, metrics, artifacts
        self._required, self._purged = required, purged
        self._origins = origins
        self._known: OrderedDict[tuple[str, int], bool] = OrderedDict()  # → whether the run is a job's
        self._lock = threading.Lock()

    def open(self, run: str) -> str | None:
        """The project of an existing run that isn't a job; None if there is none. "" if it was purged."""
        if self.gone(run):
            return ""  # later data is accepted and dropped
        with self._db.reading() as connection:
            found = read_run(connection, run)
        return None if found is None or found.of_job else found.project

    def gone(self, run: str) -> bool:
        """Whether the run was purged: then later data is acknowledged and dropped."""
        return run in self._purged

    def records(
        self,
        run: str,
        attempt: int,
        project: str,
        batch: Batch,
        writes: Sequence[StreamWrite],
        docs: Sequence[tuple[int, Doc]],
        now: float,
        holder: Holder | None = None,
    ) -> list[Record]:
        """Statements for what is new in the batch: its columns, its documents, its end."""
        if self.gone(run):
            return []
        of_job, first = self._meet(run, attempt)
        records: list[Record] = []
        if first and not of_job:
            records.append(_begun(run, attempt, now))
        for write in writes:
            if write.columns:
                records.append(self._metrics.append(run, attempt, write.rank, write.columns))
        children, docs = take_children(docs)
        known = {ident: one for ident, one in children.items() if not self.gone(f"{run}.{ident}")}
        records += children_records(run, attempt, known, self._metrics.append, now)
        entries, docs = take_phases(docs)
        if entries:
            records.append(phases_record(run, attempt, entries))
        if docs:
            documents = read_documents(self._artifacts, self._origins, run, attempt, docs)
            records += [documents.record(now, holder)] if documents is not None else []
        if batch.state == "ended":
            self._metrics.ended(run)
            records += [stale_record(run, attempt)] if of_job and records else []
        for ident in (ident for ident, one in known.items() if one.ended):
            self._metrics.ended(f"{run}.{ident}")
        if batch.state == "ended" and batch.exit is not None and not of_job:
            records += [_ended(run, attempt, batch.exit), self._required.check(run, project)]
        return records

    def _meet(self, run: str, attempt: int) -> tuple[bool, bool]:
        """Whether the run is a job's, and whether this is the attempt's first batch since the server started."""
        key = (run, attempt)
        with self._lock:
            if key in self._known:
                self._known.move_to_end(key)
                return self._known[key], False
        found = self._source(run)
        of_job = found is None or found == "job"
        with self._lock:
            self._known[key] = of_job
            if len(self._known) > _KNOWN:
                self._known.popitem(last=False)
        return of_job, True

    def _source(self, run: str) -> str | None:
        with self._db.reading() as connection:
            return connection.execute(select(tables.runs.c.source).where(tables.runs.c.id == run)).scalar_one_or_none()


def _begun(run: str, attempt: int, now: float) -> Record:
    """Records the first batch of an attempt of a run outside Muster."""

    def record(connection: Connection) -> None:
        found = read_run(connection, run)
        if found is None or found.attempts >= attempt:
            return
        columns: dict[str, Any] = {"attempts": attempt}
        if found.started_at is None:
            columns["started_at"] = now
        patch_run(connection, run, **columns)
        patch_attempt(connection, run, attempt, {"running_at": now})
        if attempt > 1:
            row = note_row(
                found.project, run, now, SYSTEM, "restart", f"Attempt {attempt} begins.", {"attempt": attempt},
                f"{run}:{attempt}:begins",
            )  # fmt: skip
            add(connection, tables.notes, [row])

    return record


def _ended(run: str, attempt: int, exit: WorkerExit) -> Record:
    """Records the end of a run outside Muster, once."""
    kind = REASONS.get(exit.reason)
    message = exit.detail.strip().splitlines()[-1] if exit.detail.strip() else kind.summary if kind else exit.reason
    reason = {"code": exit.reason, "message": message[:1000], "hint": kind.hint if kind else "", "data": {}}

    def record(connection: Connection) -> None:
        found = read_run(connection, run)
        if found is None or found.phase in FINAL or found.attempts > attempt:
            return
        patch_run(connection, run, {"reason": reason}, phase=exit.outcome, ended_at=exit.time)
        close_children(connection, run, exit.outcome, exit.time)
        ended = {"ended_at": exit.time, "outcome": exit.outcome, "reason": reason, "exits": {"": exit.to_dict()}}
        patch_attempt(connection, run, attempt, ended)
        text = f"{exit.outcome.capitalize()}: {message}".rstrip(".") + "."
        doc = {"phase": exit.outcome, "reason": reason}
        mark = f"{run}:{attempt}:ended"
        add(connection, tables.notes, [note_row(found.project, run, exit.time, SYSTEM, "end", text, doc, mark)])

    return record
