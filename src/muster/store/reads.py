"""Reads of a SQL store: always from the rows, so that callers never get an object of the live state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from sqlalchemy import ColumnElement, Row, func, literal, select

from muster.core.event import Event
from muster.core.job import Attempt, Job
from muster.store import codec, log_rows, tables
from muster.store.base import EventFilter, JobFilter, LogChunk, LogSize, SetAside, StreamState
from muster.store.connect import Database
from muster.wire import Stream

_AT_ONCE: Final = 500  # maximum ids in one statement

_job = select(tables.jobs.c.spec, tables.jobs.c.doc)


class SqlReads:
    """The methods of a SQL store that do not use the live state."""

    _db: Database

    def job(self, job_id: str) -> Job | None:
        return self._one_job(tables.jobs.c.id == job_id)

    def job_by_number(self, number: int) -> Job | None:
        return self._one_job(tables.jobs.c.number == number)

    def jobs_by_key(self, user: str, keys: Sequence[str]) -> dict[str, str]:
        jobs = tables.jobs.c
        found: dict[str, str] = {}
        with self._db.reading() as connection:
            for at in range(0, len(keys), _AT_ONCE):
                some = (jobs.user == user) & jobs.key.in_(keys[at : at + _AT_ONCE])
                found.update((key, id_) for key, id_ in connection.execute(select(jobs.key, jobs.id).where(some)))
        return found

    def jobs(self, want: JobFilter) -> list[Job]:
        query = _job.where(*_job_terms(want)).order_by(tables.jobs.c.number.desc()).limit(want.limit)
        with self._db.reading() as connection:
            rows = connection.execute(query).all()
        return [codec.job_from(spec, doc) for spec, doc in rows]

    def task_phases(self, arrays: Sequence[str]) -> dict[str, dict[str, int]]:
        jobs = tables.jobs.c
        query = select(jobs.parent, jobs.phase, func.count()).where(jobs.parent.in_(arrays), jobs.name.like("%]"))
        found: dict[str, dict[str, int]] = {}
        with self._db.reading() as connection:
            for array, phase, count in connection.execute(query.group_by(jobs.parent, jobs.phase)):
                found.setdefault(array, {})[phase] = count
        return found

    def attempts(self, job_id: str) -> list[Attempt]:
        attempts = tables.attempts.c
        query = select(attempts.doc).where(attempts.job == job_id).order_by(attempts.number)
        with self._db.reading() as connection:
            return [codec.attempt_from(doc) for (doc,) in connection.execute(query)]

    def events(self, want: EventFilter) -> list[Event]:
        seq = tables.events.c.seq
        query = select(tables.events).where(*_event_terms(want)).limit(want.limit)
        with self._db.reading() as connection:
            rows = connection.execute(query.order_by(seq.desc() if want.last else seq)).all()
        return [event_from(row) for row in (reversed(rows) if want.last else rows)]

    def version(self) -> int:
        with self._db.reading() as connection:
            return int(connection.execute(select(tables.head.c.version)).scalar_one())

    def marks(self) -> dict[str, int]:
        with self._db.reading() as connection:
            return {row.name: row.seq for row in connection.execute(select(tables.follower_marks))}

    def set_aside(self, limit: int = 100) -> list[SetAside]:
        rows = tables.set_aside.c
        with self._db.reading() as connection:
            found = connection.execute(select(tables.set_aside).order_by(rows.id.desc()).limit(limit))
            return [
                SetAside(source, run, attempt, data, error, time, number)
                for number, time, source, run, attempt, error, data in found
            ]

    def run(self, job_id: str) -> dict[str, Any]:
        return self.runs([job_id]).get(job_id, {})

    def runs(self, job_ids: Sequence[str]) -> dict[str, dict[str, Any]]:
        values = tables.run_values.c
        found: dict[str, dict[str, Any]] = {}
        with self._db.reading() as connection:
            for at in range(0, len(job_ids), _AT_ONCE):
                some = values.job.in_(job_ids[at : at + _AT_ONCE])
                for job_id, key, value in connection.execute(select(tables.run_values).where(some)):
                    found.setdefault(job_id, {})[key] = codec.loads(value)
        return found

    def streams(self, job_id: str, attempt: int) -> Mapping[tuple[int, Stream], StreamState]:
        streams = tables.streams.c
        query = select(streams.rank, streams.stream, streams.acked, streams.shapes)
        with self._db.reading() as connection:
            rows = connection.execute(query.where(streams.job == job_id, streams.attempt == attempt)).all()
        return {(rank, stream): StreamState(acked, codec.shapes_from(shapes)) for rank, stream, acked, shapes in rows}

    def logs(
        self,
        job_id: str,
        attempt: int,
        rank: int | None,
        after: int,
        limit: int,
        *,
        before: int | None = None,
        since: float | None = None,
        most: int | None = None,
        last: bool = False,
    ) -> list[LogChunk]:
        with self._db.reading() as connection:
            page, values = log_rows.page(job_id, attempt, rank, after, limit, before, since, last)
            return log_rows.read(connection, page, values, most)

    def log_sizes(self, job_id: str) -> list[LogSize]:
        streams = tables.streams.c
        query = select(streams.attempt, streams.rank, streams.acked, streams.kept)
        query = query.where(streams.job == job_id, streams.stream == "log").order_by(streams.attempt, streams.rank)
        with self._db.reading() as connection:
            return [LogSize(*row) for row in connection.execute(query)]

    def secret(self, project: str, name: str) -> bytes | None:
        secrets = tables.secrets.c
        query = select(secrets.cipher).where(secrets.project == project, secrets.name == name)
        with self._db.reading() as connection:
            return connection.execute(query).scalar()

    def secret_names(self, project: str) -> list[str]:
        secrets = tables.secrets.c
        with self._db.reading() as connection:
            return sorted(connection.execute(select(secrets.name).where(secrets.project == project)).scalars())

    def _one_job(self, term: ColumnElement[bool]) -> Job | None:
        with self._db.reading() as connection:
            row = connection.execute(_job.where(term)).first()
        return codec.job_from(*row) if row else None


def _job_terms(want: JobFilter) -> list[ColumnElement[bool]]:
    jobs = tables.jobs.c
    equal = [(jobs.queue, want.queue), (jobs.user, want.user), (jobs.name, want.name), (jobs.parent, want.parent)]
    terms = [column == value for column, value in equal if value is not None]
    if want.ids is not None:
        terms.append(jobs.id.in_(want.ids))
    if want.projects is not None:
        terms.append(jobs.project.in_(want.projects))
    if want.phases is not None:
        terms.append(jobs.phase.in_(want.phases))
    if not want.tasks:
        terms.append(jobs.name.not_like("%]"))  # `sweep[3]`; no other name ends so
    if want.before is not None:
        terms.append(jobs.number < want.before)
    return terms or [literal(True)]


def _event_terms(want: EventFilter) -> list[ColumnElement[bool]]:
    events = tables.events.c
    terms = [events.seq > want.after]
    if want.before is not None:
        terms.append(events.seq < want.before)
    if want.projects is not None:
        terms.append(events.project.in_([project for project in want.projects if project]))
    if want.job is not None:
        terms.append(events.job == want.job)
    if want.actor is not None:
        terms.append(events.actor == want.actor)
    if want.kind:
        # Not LIKE: SQLite's ignores case.
        kind = func.substr(events.kind, 1, len(want.kind)) if want.kind.endswith(".") else events.kind
        terms.append(kind == want.kind)
    return terms


def event_from(row: Row[Any]) -> Event:
    return Event(
        codec.payload_from(row.kind, row.data), row.time, row.actor, row.project, row.job, row.attempt, row.seq
    )
