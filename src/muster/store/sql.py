"""The durable store: one implementation for SQLite and for PostgreSQL, which several servers can share.

Each transaction first updates the single row of `head`, on condition that it still has the turn that this server last
saw. If another server has written meanwhile, no row matches and nothing is written. Until the transaction ends, the row
is locked, so that no other server can write.
"""

from __future__ import annotations

import gc
import re
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from sqlalchemy import Connection, func, make_url, select
from sqlalchemy.exc import ArgumentError

from muster.api.words import FINAL, PHASES
from muster.core import faults
from muster.core.errors import ConfigError, Unavailable
from muster.core.job import Job
from muster.core.state import State
from muster.store import codec, tables
from muster.store.base import Lease
from muster.store.connect import Database, connect
from muster.store.db_errors import taken_by_another
from muster.store.fold import Batch, FoldStore
from muster.store.leases import FileLease, RowLease
from muster.store.marks import Mark, Marked
from muster.store.past_reads import PastReads
from muster.store.reads import SqlReads
from muster.store.refold import refold
from muster.store.writes import Turn, writes_for

_ROWS: Final = 2_000  # jobs held as text at a time while loading
_REMEMBERED: Final = 4_000  # finished jobs whose run times are loaded after a restart


class SqlStore(SqlReads, PastReads, FoldStore):
    """`url` such as `sqlite:///path` or `postgresql://user@host/database`. Does nothing before `open`."""

    def __init__(self, url: str) -> None:
        super().__init__()
        self._url = url
        self._turn = 0
        self._opened = False

    def open(self) -> None:
        """Does nothing when the store is already open."""
        if self._opened:
            return
        try:
            self._db = connect(make_url(self._url))
        except (ArgumentError, ValueError):  # a port that is not a number
            shown = re.sub(r"(?<=:)[^:@/]*(?=@)", "***", self._url)
            raise ConfigError(
                f"{shown!r} is no database URL.", "Give `sqlite:///path` or `postgresql://user@host/database`."
            ) from None
        try:
            self._upgrade()
            refold(self._db)
            self._writes = writes_for(self._db.writer.dialect)
            self._lease = FileLease(self._db) if self._db.kind == "sqlite" else RowLease(self._db)
            self.reload()
        except Unavailable as error:
            self._db.close()
            raise ConfigError(error.message, error.hint) from error
        except BaseException:
            self._db.close()
            raise
        self._opened = True

    def close(self) -> None:
        with self._lock:
            if self._opened:
                self._lease.close()
                self._db.close()
                self._opened = False

    @property
    def database(self) -> Database | None:
        return self._db

    def lease(self) -> Lease | None:
        return self._lease.look()

    def take_lease(self, holder: str, urls: Sequence[str], after: Lease | None) -> Lease | None:
        return self._lease.take(holder, urls, after)

    def renew_lease(self, lease: Lease) -> Lease | None:
        return self._lease.renew(lease)

    def drop_lease(self, lease: Lease) -> None:
        self._lease.drop(lease)

    def _upgrade(self) -> None:
        with self._db.reading() as connection:
            if tables.revision(connection) == tables.REVISION:
                return
        # Imported late: loading Alembic takes longer than opening a store that needs no migration.
        from muster.store.migrate import upgrade  # noqa: PLC0415

        upgrade(self._db)

    def _write(self, batch: Batch) -> None:
        turn = Turn(self._turn + 1, secrets.token_hex(8), self._state.version, self._state.time)
        try:
            with self._db.writing() as connection:
                if not self._writes.move_head(connection, turn):
                    raise taken_by_another(self._db.where)
                self._writes.write(connection, batch, self._marks.get)
                faults.point("store.before_commit")
        except Unavailable:
            # If the connection breaks during the commit, it is unknown whether the commit succeeded. The token tells.
            if not self._landed(turn):
                raise
        faults.point("store.after_commit")
        self._turn = turn.number

    def _landed(self, turn: Turn) -> bool:
        try:
            with self._db.reading() as connection:
                return connection.execute(select(tables.head.c.token)).scalar() == turn.token
        except Unavailable:
            return False

    def _behind(self) -> bool:
        with self._db.reading() as connection:
            return connection.execute(select(tables.head.c.turn)).scalar() != self._turn

    def _load(self) -> State:
        with self._db.reading() as connection, _uncollected():
            turn, version, time = connection.execute(
                select(tables.head.c.turn, tables.head.c.version, tables.head.c.time)
            ).one()
            state = State(version=version, time=time)
            for kind, name, doc in connection.execute(select(tables.entities)):
                codec.load_entity(state, kind, name, doc)
            _load_jobs(connection, state)
            _load_history(connection, state)
        self._turn = turn
        return state

    def _load_marks(self, job_id: str, attempt: int) -> Marked:
        streams = tables.streams.c
        query = select(streams.rank, streams.stream, streams.acked, streams.kept)
        with self._db.reading() as connection:
            rows = connection.execute(query.where(streams.job == job_id, streams.attempt == attempt)).all()
        return {(rank, stream): Mark(acked, kept) for rank, stream, acked, kept in rows}


def _load_jobs(connection: Connection, state: State) -> None:
    jobs = tables.jobs.c
    live = jobs.phase.in_([phase for phase in PHASES if phase not in FINAL])
    rows = connection.execute(select(jobs.number, jobs.spec, jobs.doc).where(live))
    loaded = [_load_job(*row) for part in rows.partitions(_ROWS) for row in part]
    # Queued jobs in the order of their queues, so that each is appended at the end; running ones oldest first.
    loaded.sort(key=lambda job: (-job.spec.priority, job.number))
    loaded.sort(key=lambda job: job.attempt.planned_at if job.active and job.attempt else 0.0)
    for job in loaded:
        state.add_job(job)
    newest = connection.execute(select(func.max(jobs.number))).scalar()
    state.next_number = (newest or 0) + 1


def _load_history(connection: Connection, state: State) -> None:
    """Run times of the newest finished jobs, in the order in which they ended, as the log has them."""
    jobs, found = tables.jobs.c, list[Job]()
    for phase in sorted(FINAL):  # one by one, so that each uses the index
        done = select(jobs.spec, jobs.doc).where(jobs.phase == phase).order_by(jobs.number.desc()).limit(_REMEMBERED)
        found += [codec.job_from(spec, doc) for spec, doc in connection.execute(done)]
    newest = sorted(found, key=lambda job: job.number)[-_REMEMBERED:]
    for job in sorted(newest, key=lambda job: (job.finished_at or 0.0, job.number)):
        state.learn(job)


def _load_job(number: int, spec: str, doc: str) -> Job:
    try:
        return codec.job_from(spec, doc)
    except (ValueError, TypeError, KeyError) as error:
        raise ConfigError(
            f"The record of job {number} can't be read: {error!r}.",
            "Use the version of Muster that wrote it, or restore the database from a backup.",
        ) from error


@contextmanager
def _uncollected() -> Iterator[None]:
    """Disables the garbage collector during a load: nothing is garbage, and looking for it takes longer than the load.

    Freezes the loaded objects afterwards: they stay and have no cycles, so the collector never needs to visit them.
    """
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if was:
            gc.enable()
