"""Purges a run: deletes its rows in every table, its checkpoints, and blobs that nothing else refers to."""

from __future__ import annotations

import logging
import re
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

from sqlalchemy import ColumnElement, Connection, Table, delete, func, or_, select

from muster.api.words import FINAL
from muster.core.errors import Conflict, Invalid, MusterError
from muster.core.event import Event
from muster.core.record_events import RunPurged
from muster.core.start import needed_by
from muster.core.state import State
from muster.store import record_tables as record
from muster.store import tables
from muster.store.base import Record
from muster.store.insert import put
from muster.track.blobs import Blobs
from muster.track.intake import Purged
from muster.track.record_db import RecordDb
from muster.track.rows import Run
from muster.track.runs import Runs
from muster.track.snapshots import read_manifest
from muster.track.values import OPENED, PURGED

log = logging.getLogger("muster.track")

_DIGEST: Final = re.compile(r"(?<![0-9a-f])[0-9a-f]{64}(?![0-9a-f])")
_BY_RUN: Final[Mapping[Table, str]] = {
    record.runs: "id",
    record.run_params: "run",
    record.run_tags: "run",
    record.run_changes: "run",
    record.run_attempts: "run",
    record.run_phases: "run",
    record.goodput: "run",
    record.goodput_nodes: "run",
    record.metric_tail: "run",
    record.metric_blocks: "run",
    record.metric_series: "run",
    record.media: "run",
    record.run_stacks: "run",
    record.artifacts: "run",
    record.checkpoints: "run",
    record.notes: "run",
    record.run_stages: "run",
    record.statements: "run",
    record.statements_due: "run",
    tables.run_values: "job",
    tables.log_chunks: "job",
    tables.streams: "job",
}
_TIMEOUT: Final = 200  # milliseconds to wait for the write-ahead log


class Purge:
    """`folders` contain one folder per job, created by Muster: the run's folder in each is deleted too."""

    def __init__(
        self,
        db: RecordDb,
        runs: Runs,
        blobs: Blobs,
        purged: Purged,
        phase: Callable[[str], str | None],
        folders: Sequence[Path],
        remove: Callable[[Path], None],
    ) -> None:
        self._db, self._runs, self._blobs = db, runs, blobs
        self._purged, self._phase, self._folders, self._remove = purged, phase, folders, remove

    def purge(self, run: str, actor: str) -> dict[str, int]:
        """Purges a run. Returns the number of deleted rows by table.

        Raises Conflict if its job has not ended, if a job has yet to start from its checkpoint, or if a model was made
        from it.
        """
        with self._db.holding(run):
            found = self._runs.need(run)
            self._refuse(found)
            counts, digests = self._count(run), self._digests(found)
            event = Event(RunPurged(counts), self._db.now(), actor, found.project, run)
            self._purged.add(run)  # first, so that nothing of it can be written after the deletion
            try:
                self._db.write(_deleted(run), events=[event], check=partial(_check_starts, run))
            except BaseException:
                self._purged.discard(run)
                raise
        self._clear(run, digests)
        return counts

    def _refuse(self, run: Run) -> None:
        phase = self._phase(run.id)
        if phase is not None and phase not in FINAL:
            raise Conflict(f"Job {run.id} is {phase}.", f"Stop it first: `muster stop {run.id}`.")
        versions = record.model_versions.c
        with self._db.reading() as connection:
            query = select(versions.name, versions.version).where(versions.run == run.id).limit(1)
            model = connection.execute(query).first()
        if model is not None:
            name = f"{model.name}/{model.version}"
            raise Conflict(f"Model {name} was made from run {run.id}.", f"Delete it first: `muster models rm {name}`.")

    def _count(self, run: str) -> dict[str, int]:
        counts = {}
        with self._db.reading() as connection:
            for table, where in _places(run):
                number = connection.execute(select(func.count()).select_from(table).where(where)).scalar() or 0
                if number:
                    counts[table.name] = number
        return counts

    def _digests(self, run: Run) -> set[str]:
        """The digests of all blobs that the run refers to."""
        found = {run.code_tree} - {""}
        with self._db.reading() as connection:
            columns = (record.artifacts.c.digest, record.artifacts.c.doc, record.media.c.doc, record.notes.c.doc,
                       record.statements.c.digest)  # fmt: skip
            for column in (*columns, record.run_attempts.c.doc):
                rows = connection.execute(select(column).where(column.table.c.run == run.id)).scalars()
                found.update(digest for text in rows for digest in _DIGEST.findall(text))
            doc = connection.execute(select(record.runs.c.doc).where(record.runs.c.id == run.id)).scalar_one()
            found.update(_DIGEST.findall(doc))
        return found | set(self._of_snapshot(run))

    def _of_snapshot(self, run: Run) -> Iterator[str]:
        if run.code_tree and run.code_tree in self._blobs.has([run.code_tree]):
            try:
                yield from read_manifest(self._blobs, run.code_tree).digests()
            except Invalid:
                return

    def _clear(self, run: str, digests: set[str]) -> None:
        """Deletes data outside the database. The rows are gone already: what fails here is collected later, or
        logged.
        """
        for folder in self._folders:
            self._remove(folder / run)
        try:
            self._blobs.release(digests)
        except MusterError as error:
            log.warning("content of the deleted run %s could not be deleted yet: %s", run, error)
        if self._db.database.kind == "sqlite":
            _empty_log(self._db)


def _check_starts(run: str, state: State) -> None:
    if jobs := needed_by(state, run):
        more = f" and {len(jobs) - 1} more" if len(jobs) > 1 else ""
        hint = f"Wait until it has taken it, or stop it first: `muster stop {jobs[0]}`."
        raise Conflict(f"Job {jobs[0]}{more} starts from a checkpoint of {run}.", hint)


def remove_folder(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)


def _places(run: str) -> Iterator[tuple[Table, ColumnElement[bool]]]:
    for table, column in _BY_RUN.items():
        yield table, table.c[column] == run
    links = record.links.c
    ends = (end for column in (links.source, links.target) for end in _named(column, run))
    yield record.links, or_(*ends)
    yield record.track_marks, record.track_marks.c.name.startswith(f"{OPENED}{run}/", autoescape=True)


def _named(column: Any, run: str) -> Iterator[ColumnElement[bool]]:
    yield column == f"run:{run}"
    for kind in ("checkpoint", "artifact"):
        yield column.startswith(f"{kind}:{run}/", autoescape=True)


def _deleted(run: str) -> Record:
    def write(connection: Connection) -> None:
        sqlite = connection.dialect.name == "sqlite"
        if sqlite:  # overwrites deleted data with zeros
            connection.exec_driver_sql("PRAGMA secure_delete = ON")
        for table, where in _places(run):
            connection.execute(delete(table).where(where))
        put(connection, record.track_marks, [{"name": PURGED + run, "value": 0}])
        if sqlite:
            connection.exec_driver_sql("PRAGMA secure_delete = OFF")

    return write


def _empty_log(db: RecordDb) -> None:
    """Removes the deleted data from the write-ahead log too, unless a reader is active."""
    connection = db.database.writer.raw_connection()
    try:
        cursor = connection.cursor()
        cursor.execute(f"PRAGMA busy_timeout = {_TIMEOUT}")
        cursor.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        cursor.fetchall()
        cursor.execute("PRAGMA busy_timeout = 15000")
        cursor.close()
    finally:
        connection.close()
