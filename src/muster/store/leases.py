"""The leader's lease: in PostgreSQL a row that is taken by conditional updates; with SQLite a lock on a file.

The servers of one SQLite database run on one machine, so the kernel knows whether the holder is alive: its lock is
released the moment it dies, a renewal costs nothing, and a full disk does not cost the holder its lease.
"""

from __future__ import annotations

import fcntl
import os
import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from sqlalchemy import ColumnElement, Executable, Row, select, update
from sqlalchemy.dialects import postgresql, sqlite

from muster.store import codec
from muster.store.base import Lease
from muster.store.connect import Database
from muster.store.tables import lease as table

_NAME: Final = "leader"
_row = table.c


class RowLease:
    """Held as long as its beat increases; see `control.lease`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def look(self) -> Lease | None:
        with self._database.reading() as connection:
            row = connection.execute(select(table).where(_row.name == _NAME)).first()
        return _lease(row) if row and row.holder else None

    def take(self, holder: str, urls: Sequence[str], after: Lease | None) -> Lease | None:
        if after is None:
            return self._upsert(holder, urls, _row.holder == "")
        seen = (_row.name == _NAME, _row.epoch == after.epoch, _row.beat == after.beat)
        return self._run(update(table).where(*seen).values(_taken(holder, urls)).returning(*_row))

    def seize(self, holder: str, urls: Sequence[str]) -> Lease | None:
        """Takes the lease, whoever holds it."""
        return self._upsert(holder, urls, None)

    def renew(self, lease: Lease) -> Lease | None:
        return self._run(update(table).where(*_held_by(lease)).values(beat=_row.beat + 1).returning(*_row))

    def drop(self, lease: Lease) -> None:
        values = {"holder": "", "urls": "[]", "beat": _row.beat + 1}
        self._run(update(table).where(*_held_by(lease)).values(values).returning(*_row))

    def close(self) -> None:
        """Nothing is open."""

    def _upsert(self, holder: str, urls: Sequence[str], where: ColumnElement[bool] | None) -> Lease | None:
        insert = sqlite.insert if self._database.kind == "sqlite" else postgresql.insert
        taken = _taken(holder, urls)
        first = insert(table).values(name=_NAME, holder=holder, epoch=1, beat=1, urls=taken["urls"])
        over = first.on_conflict_do_update(index_elements=[_row.name], set_=taken, where=where)
        return self._run(over.returning(*_row))

    def _run(self, statement: Executable) -> Lease | None:
        with self._database.writing() as connection:
            row = connection.execute(statement).first()
        return _lease(row) if row else None


class FileLease:
    """Held as long as this process is alive and has not dropped it; the row only counts the epochs."""

    def __init__(self, database: Database) -> None:
        self._rows = RowLease(database)
        self._path = Path(f"{database.where}.lead")
        self._lock = threading.Lock()
        self._file = -1
        self._mine: Lease | None = None

    def look(self) -> Lease | None:
        with self._lock:
            if self._mine is not None:
                return self._mine
            if self._acquire():  # no process holds it, whatever the row says
                self._release()
                return None
        return self._rows.look()

    def take(self, holder: str, urls: Sequence[str], after: Lease | None) -> Lease | None:
        with self._lock:
            mine = self._mine
            if mine is not None and (after is None or (mine.epoch, mine.beat) != (after.epoch, after.beat)):
                return None  # this process holds it, but not as `after` says
            if mine is None and not self._acquire():
                return None
            try:
                self._mine = self._rows.seize(holder, urls)
            finally:
                if self._mine is None:
                    self._release()
            return self._mine

    def renew(self, lease: Lease) -> Lease | None:
        with self._lock:
            if not self._holds(lease):
                return None
            self._mine = replace(lease, beat=lease.beat + 1)
            return self._mine

    def drop(self, lease: Lease) -> None:
        with self._lock:
            if self._holds(lease):
                self._mine = None
                self._release()

    def close(self) -> None:
        with self._lock:
            self._mine = None
            self._release()

    def _holds(self, lease: Lease) -> bool:
        return self._mine is not None and (self._mine.holder, self._mine.epoch) == (lease.holder, lease.epoch)

    def _acquire(self) -> bool:
        self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._release()
            return False
        return True

    def _release(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


def _taken(holder: str, urls: Sequence[str]) -> dict[str, Any]:
    return {"holder": holder, "epoch": _row.epoch + 1, "beat": _row.beat + 1, "urls": codec.dumps(tuple(urls))}


def _held_by(lease: Lease) -> tuple[ColumnElement[bool], ...]:
    return _row.name == _NAME, _row.holder == lease.holder, _row.epoch == lease.epoch


def _lease(row: Row[Any]) -> Lease:
    return Lease(row.holder, row.epoch, row.beat, tuple(codec.loads(row.urls)))
