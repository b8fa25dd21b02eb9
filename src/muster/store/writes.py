"""Writes one batch: the statements of a transaction, compiled once for a database and run with plain tuples.

SQLAlchemy generates the SQL. The rows go directly to the driver: with a thousand jobs per batch, a dictionary and a
bind processor for each row would take too long.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Dialect, Table, bindparam, delete, insert, update
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.sql.dml import UpdateBase

from muster.core.job import Job
from muster.core.spec import work_class
from muster.store import tables
from muster.store.base import SetAside, StreamWrite
from muster.store.codec import dumps, entity_text, job_text, pack, storable
from muster.store.fold import Batch
from muster.store.log_limit import end_line, is_over, parts, prune
from muster.store.log_rows import StoredChunks
from muster.store.marks import Mark
from muster.store.past import Rollup
from muster.store.records import run_records

Row = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Turn:
    """The head of the log after a transaction; `token` is unique to the transaction."""

    number: int
    token: str
    version: int
    time: float


class Writes:
    """The statements for one dialect. `writes_for` gives those that were compiled already."""

    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect
        self._move_head = self._update(tables.head, ["turn", "token", "version", "time"], ["id", "turn"])
        self._add_event = self._insert(tables.events)
        self._add_job = self._insert(tables.jobs)
        self._set_job = self._update(tables.jobs, ["phase", "finished_at", "doc"], ["number"])
        self._add_log = self._insert(tables.log_chunks, without="id")
        self._set_attempt = self._upsert(tables.attempts)
        self._set_entity = self._upsert(tables.entities)
        self._drop_entity = self._delete(tables.entities, ["kind", "id"])
        self._set_stream = self._upsert(tables.streams)
        self._set_value = self._upsert(tables.run_values)
        self._set_secret = self._upsert(tables.secrets)
        self._drop_secret = self._delete(tables.secrets, ["project", "name"])
        self._set_start = self._update(tables.jobs, ["started_at"], ["number"])
        self._set_rollup = self._upsert(tables.rollups)
        self._forget = self._delete(tables.rollups, ["resolution"], before="start")
        self._set_mark = self._upsert(tables.follower_marks)
        self._add_aside = self._insert(tables.set_aside, without="id")
        self._replace_event = self._update(tables.events, ["kind", "data"], ["seq"])

    def move_head(self, connection: Connection, turn: Turn) -> bool:
        """Whether no other server has written since the previous turn. Blocks other writers until the commit."""
        values = (turn.number, turn.token, turn.version, turn.time, 1, turn.number - 1)
        return connection.exec_driver_sql(self._move_head, values).rowcount == 1

    def write(self, connection: Connection, batch: Batch, mark: Callable[[StreamWrite], Mark]) -> None:
        run = _Runner(connection)
        run(self._add_event, _event_rows(batch))
        self.write_folded(connection, batch)
        rows: list[Row] = []
        for write in batch.streams:
            if write.gap:  # earlier rows of this batch first: the line that is cut may be in them
                run(self._add_log, rows)
                rows = []
                end_line(StoredChunks(connection, write), write, mark(write))
            rows += _log_rows(write)
        run(self._add_log, rows)
        for write in batch.tips():
            if is_over(write, mark(write)):
                prune(StoredChunks(connection, write), write, mark(write))
        run(self._set_stream, [_stream_row(write, mark(write)) for write in batch.tips()])
        run(self._set_value, [(*key, text) for key, text in batch.values.items()])
        run(self._set_secret, [(*key, cipher) for key, cipher in batch.secrets.items() if cipher is not None])
        run(self._drop_secret, [key for key, cipher in batch.secrets.items() if cipher is None])
        run(self._set_rollup, [_rollup_row(rollup) for rollup in batch.rollups.values()])
        run(self._forget, list(batch.forget.items()))
        batch.failures = run_records(connection, batch.recorded)
        refused = {failure.number for failure in batch.failures if failure.refused}
        marks = [batch.marks, *(one.entry.marks for one in batch.recorded if one.number not in refused)]
        run(self._set_mark, [mark for some in marks for mark in some.items()])
        aside = [*batch.aside, *(one for failure in batch.failures if not failure.refused for one in failure.aside())]
        run(self._add_aside, [_aside_row(one) for one in aside])
        run(self._replace_event, [row for failure in batch.failures if failure.refused for row in failure.events()])

    def write_folded(self, connection: Connection, batch: Batch) -> None:
        """Writes what the batch's events changed: jobs, attempts and entities."""
        run = _Runner(connection)
        new = [job for job in batch.changes.jobs.values() if job.id in batch.specs]
        old = [job for job in batch.changes.jobs.values() if job.id not in batch.specs]
        begun = {event.job for event in batch.events if event.kind == "attempt.running"}
        run(self._add_job, [_job_row(job, batch.specs[job.id]) for job in new])
        run(self._set_job, [(job.phase, job.finished_at, job_text(job), job.number) for job in old])
        # Separate from the other columns, and once: a statement that sets it moves the job in the index of starts.
        run(self._set_start, [(job.started_at, job.number) for job in old if job.id in begun])
        run(self._set_attempt, [(*key, dumps(attempt)) for key, attempt in batch.changes.attempts.items()])
        entities = batch.changes.entities.items()
        run(self._set_entity, [(*key, entity_text(key[0], entity)) for key, entity in entities if entity is not None])
        run(self._drop_entity, [key for key, entity in entities if entity is None])

    def _insert(self, table: Table, without: str = "") -> str:
        names = [column.name for column in table.columns if column.name != without]
        return self._sql(insert(table), names)

    def _upsert(self, table: Table) -> str:
        make = sqlite.insert if self._dialect.name == "sqlite" else postgresql.insert
        statement = make(table)
        keys = [column.name for column in table.primary_key]
        names = [column.name for column in table.columns]
        values = {name: statement.excluded[name] for name in names if name not in keys}
        return self._sql(statement.on_conflict_do_update(index_elements=keys, set_=values), names)

    def _update(self, table: Table, names: Sequence[str], where: Sequence[str]) -> str:
        values: dict[str, Any] = {name: bindparam(f"new_{name}") for name in names}
        statement = update(table).where(*(table.c[name] == bindparam(f"old_{name}") for name in where)).values(values)
        return self._sql(statement, names, [f"new_{name}" for name in names] + [f"old_{name}" for name in where])

    def _delete(self, table: Table, where: Sequence[str], before: str = "") -> str:
        statement = delete(table).where(*(table.c[name] == bindparam(f"old_{name}") for name in where))
        if before:
            statement = statement.where(table.c[before] < bindparam(f"old_{before}"))
        return self._sql(statement, [], [f"old_{name}" for name in (*where, before) if name])

    def _sql(self, statement: UpdateBase, names: Sequence[str], order: Sequence[str] | None = None) -> str:
        compiled = statement.compile(dialect=self._dialect, column_keys=list(names))
        assert compiled.positiontup == list(order or names), "rows are given in this order"
        return str(compiled)


_COMPILED: dict[tuple[str, str], Writes] = {}


def writes_for(dialect: Dialect) -> Writes:
    key = (dialect.name, dialect.driver)
    if key not in _COMPILED:
        _COMPILED[key] = Writes(dialect)
    return _COMPILED[key]


class _Runner:
    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def __call__(self, sql: str, rows: Sequence[Row]) -> None:
        if rows:
            self._connection.exec_driver_sql(sql, list(rows))


def _event_rows(batch: Batch) -> list[Row]:
    return [
        (event.seq, event.time, event.kind, event.actor, event.project, event.job, event.attempt, text)
        for event, text in zip(batch.events, batch.texts, strict=True)
    ]


def _job_row(job: Job, spec: str) -> Row:
    return (
        job.number, job.id, job.project, job.queue, job.user, job.name, job.spec.kind, job.phase,
        job.spec.priority, job.submitted_at, job.finished_at, job.key, spec, job_text(job),
        None if job.seatless else job.started_at,  # the column is for waits, and a job without nodes waits for none
        "" if job.behind_others else work_class(job.spec),  # no service level: it waited for other jobs too
        job.spec.parent,
    )  # fmt: skip


def _aside_row(one: SetAside) -> Row:
    return one.time, storable(one.source), storable(one.run), one.attempt, storable(one.error), one.data


def _rollup_row(rollup: Rollup) -> Row:
    return rollup.resolution, rollup.start, rollup.pool, rollup.until, rollup.data


def _log_rows(write: StreamWrite) -> list[Row]:
    own = (write.job, write.attempt, write.rank)
    return [(*own, start, len(data), pack(data), write.time) for start, data in parts(write)]


def _stream_row(write: StreamWrite, mark: Mark) -> Row:
    return write.job, write.attempt, write.rank, write.stream, mark.acked, mark.kept, dumps(write.shapes)
