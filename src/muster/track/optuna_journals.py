"""Journals of Optuna: append-only logs of the operations on its studies, in the order in which the server got them.

Optuna's `JournalStorage` works on any such log: every worker appends operations, reads those of the others, and replays
them in their order. So the only thing to get right is the order, which the group commit gives, and that nothing is
appended twice: an append has a key, by which a repetition after a lost answer is known.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from sqlalchemy import Connection, delete, select, update

from muster.core.errors import Conflict, Invalid, NotFound
from muster.core.event import Event
from muster.core.record_events import OptunaJournalCreated, OptunaJournalDeleted
from muster.store.base import Record
from muster.store.codec import check_text
from muster.store.insert import add, put
from muster.store.record_tables import optuna_journals as journals
from muster.store.record_tables import optuna_logs as logs
from muster.store.record_tables import optuna_snapshots as snapshots
from muster.track.record_db import RecordDb
from muster.track.usage import Usage

NAME: Final = r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}"
LOGS_AT_ONCE: Final = 1000  # in one append
LOGS_MAX: Final = 20_000_000  # of one journal
SNAPSHOT_BYTES: Final = 32 << 20
_PAGE_LOGS: Final = 5000
_PAGE_BYTES: Final = 2 << 20
_FORMATS: Final = 4  # snapshots of one journal: Optuna's of different versions can't read each other's


@dataclass(frozen=True, slots=True)
class OptunaJournal:
    id: int
    project: str
    name: str
    user: str
    created_at: float
    updated_at: float
    logs: int
    bytes: int


class Page(NamedTuple):
    id: int  # of the journal; 0: there is none
    end: int  # the number of its next log
    logs: list[str]


class Appended(NamedTuple):
    id: int
    first: int  # the number of the first log that was appended
    end: int


@dataclass(slots=True)
class _Known:
    """What is in memory of a journal, for workers that only ask whether there is more."""

    id: int
    end: int


@dataclass(slots=True)
class OptunaJournals:
    """Exists only in the leading server: what it has in memory is right."""

    db: RecordDb
    usage: Usage
    _known: dict[tuple[str, str], _Known] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def journals(self, projects: Sequence[str] | None) -> list[OptunaJournal]:
        """The journals of these projects, or of all."""
        query = select(journals).order_by(journals.c.project, journals.c.name)
        if projects is not None:
            query = query.where(journals.c.project.in_(list(projects)))
        with self.db.reading() as connection:
            return [OptunaJournal(*row) for row in connection.execute(query)]

    def read(self, project: str, name: str, after: int, journal: int = 0) -> Page:
        """The logs from the number `after` on, as many as fit into a page. `journal` is the id that the caller knows.

        Raises Conflict if that one was deleted.
        """
        known = self._find(project, name)
        _check_same(name, known, journal)
        if known is None:
            return Page(0, 0, [])
        end = known.end
        return Page(known.id, end, self._page(known.id, after, end) if after < end else [])

    def append(self, project: str, name: str, actor: str, key: str, given: Sequence[str], journal: int = 0) -> Appended:
        """Appends all of these logs or none; durable on return. The first append makes the journal. Repeated with the
        same key it appends nothing, and returns the same.

        Raises Conflict if the journal that the caller knows was deleted, and Refused above the project's limit.
        """
        check_text(*given)
        if not 0 < len(given) <= LOGS_AT_ONCE:
            raise Invalid(f"{len(given):,} logs at once.", f"Append 1 to {LOGS_AT_ONCE:,}.")
        size = sum(len(one.encode()) for one in given)
        with self.usage.room_in(project, size):
            known = self._open(project, name, actor, journal)
            if known.end + len(given) > LOGS_MAX:
                raise Invalid(f"The journal {name!r} is full: it has {known.end:,} logs.", "Use another one.")
            found: list[Appended] = []
            self.db.write(_appending(known.id, key, given, size, self.db.now(), found))
        if not found:
            raise _deleted(name)
        with self._lock:
            known.end = max(known.end, found[0].first + len(given))
        return found[0]

    def between(self, journal: int, first: int, end: int) -> list[str]:
        """The logs from one number to below another, as many as fit into a page."""
        return self._page(journal, first, end) if first < end else []

    def delete(self, project: str, name: str, actor: str) -> None:
        with self.db.holding(_place(project, name)):
            known = self._find(project, name)
            if known is None:
                raise NotFound(f"Project {project!r} has no Optuna journal {name!r}.", "See `muster tune journals`.")
            event = self.db.event(OptunaJournalDeleted(name), actor, project)
            self.db.write(_deleting(known.id), events=[event])
            with self._lock:
                self._known.pop((project, name), None)

    # --- snapshots ----------------------------------------------------------------------------------------------------

    def snapshot(self, project: str, name: str, format: str) -> bytes | None:
        """The newest snapshot that a reader of this format understands."""
        query = select(snapshots.c.data).join(journals, journals.c.id == snapshots.c.journal)
        query = query.where(journals.c.project == project, journals.c.name == name, snapshots.c.format == format)
        with self.db.reading() as connection:
            return connection.execute(query).scalar_one_or_none()

    def save_snapshot(self, project: str, name: str, journal: int, format: str, count: int, data: bytes) -> int:
        """Keeps a snapshot of the first `count` logs in place of an older one. Returns how many the kept one has."""
        known = self._find(project, name)
        _check_same(name, known, journal)
        if known is None or not 0 < count <= known.end:
            raise Invalid(f"A snapshot of {count:,} logs.", f"The journal {name!r} has {known.end if known else 0:,}.")
        if len(data) > SNAPSHOT_BYTES:
            raise Invalid(f"The snapshot has {len(data):,} bytes.", f"It may have {SNAPSHOT_BYTES:,}.")
        kept: list[int] = []
        self.db.write(_saving(known.id, format, count, data, kept))
        return kept[0] if kept else 0

    # --- helpers ------------------------------------------------------------------------------------------------------

    def _find(self, project: str, name: str) -> _Known | None:
        with self._lock:
            known = self._known.get((project, name))
        if known is not None:
            return known
        query = select(journals.c.id, journals.c.logs).where(journals.c.project == project, journals.c.name == name)
        with self.db.reading() as connection:
            row = connection.execute(query).one_or_none()
        if row is None:
            return None
        with self._lock:
            return self._known.setdefault((project, name), _Known(*row))

    def _open(self, project: str, name: str, actor: str, journal: int) -> _Known:
        """The journal, which is made unless there is one or the caller knows one."""
        known = self._find(project, name)
        if known is None and not journal:
            with self.db.holding(_place(project, name)):
                known = self._find(project, name) or self._make(project, name, actor)
        _check_same(name, known, journal)
        assert known is not None
        return known

    def _make(self, project: str, name: str, actor: str) -> _Known:
        if not re.fullmatch(NAME, name):
            raise Invalid(
                f"{name!r} can't be the name of an Optuna journal.",
                "Use letters, digits, `.`, `_` and `-`, at most 100, and begin with a letter or digit.",
            )
        now = self.db.now()
        row = {"project": project, "name": name, "user": actor, "created_at": now, "updated_at": now}

        def record(connection: Connection) -> None:
            add(connection, journals, [{**row, "logs": 0, "bytes": 0}])

        made: Event = self.db.event(OptunaJournalCreated(name), actor, project)
        self.db.write(record, events=[made])
        known = self._find(project, name)
        assert known is not None
        return known

    def _page(self, journal: int, first: int, end: int) -> list[str]:
        query = select(logs.c.data).where(logs.c.journal == journal, logs.c.number >= first, logs.c.number < end)
        found: list[str] = []
        size = 0
        with self.db.reading() as connection:
            for (data,) in connection.execute(query.order_by(logs.c.number).limit(_PAGE_LOGS)):
                size += len(data)
                if found and size > _PAGE_BYTES:
                    break
                found.append(data)
        return found


def _appending(journal: int, key: str, given: Sequence[str], size: int, now: float, found: list[Appended]) -> Record:
    """Puts into `found` where the logs are; nothing if the journal is gone."""

    def record(connection: Connection) -> None:
        found.clear()
        count = connection.execute(select(journals.c.logs).where(journals.c.id == journal)).scalar_one_or_none()
        if count is None:
            return
        again = select(logs.c.number).where(logs.c.journal == journal, logs.c.key == key)
        first = connection.execute(again).scalar_one_or_none()
        if first is not None:
            found.append(Appended(journal, first, count))
            return
        rows = [
            {"journal": journal, "number": count + at, "key": None if at else key, "data": data}
            for at, data in enumerate(given)
        ]
        add(connection, logs, rows)
        new = {"logs": count + len(given), "bytes": journals.c.bytes + size, "updated_at": now}
        connection.execute(update(journals).where(journals.c.id == journal).values(new))
        found.append(Appended(journal, count, count + len(given)))

    return record


def _saving(journal: int, format: str, count: int, data: bytes, kept: list[int]) -> Record:
    def record(connection: Connection) -> None:
        here = snapshots.c.journal == journal
        rows = connection.execute(select(snapshots.c.format, snapshots.c.logs).where(here))
        others = {one.format: one.logs for one in rows}
        kept[:] = [max(count, others.get(format, 0))]
        if others.pop(format, 0) < count:
            put(connection, snapshots, [{"journal": journal, "format": format, "logs": count, "data": data}])
            for old in sorted(others, key=lambda one: others[one])[: max(0, len(others) + 1 - _FORMATS)]:
                connection.execute(delete(snapshots).where(here, snapshots.c.format == old))

    return record


def _deleting(journal: int) -> Record:
    def record(connection: Connection) -> None:
        for column in (logs.c.journal, snapshots.c.journal, journals.c.id):
            connection.execute(delete(column.table).where(column == journal))

    return record


def _check_same(name: str, known: _Known | None, journal: int) -> None:
    """What a worker has read is of no use if the journal that it read was deleted."""
    if journal and (known is None or known.id != journal):
        raise _deleted(name)


def _deleted(name: str) -> Conflict:
    return Conflict(f"The Optuna journal {name!r} was deleted while it was in use.", "Open the study again.")


def _place(project: str, name: str) -> str:
    return f"optuna:{project}/{name}"
