"""Access to the record's database: reading, the only way to write, and a lock for each run."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final
from zlib import crc32

from sqlalchemy import Connection

from muster.core.event import Event
from muster.store.base import Entry, Record
from muster.store.commit import Commit
from muster.store.connect import Database

_NAMED: Final = 20  # keys that an event names
_NAME_MAX: Final = 200  # characters of each
_LOCKS: Final = 256  # shared by runs: enough that two runs rarely wait for each other


def _locks() -> tuple[threading.RLock, ...]:
    return tuple(threading.RLock() for _ in range(_LOCKS))


@dataclass(frozen=True, slots=True)
class RecordDb:
    """Exists only in the leading server, so the holder of a run's lock may read, decide and write."""

    database: Database
    commit: Commit
    now: Callable[[], float]
    _held: tuple[threading.RLock, ...] = field(default_factory=_locks)

    @contextmanager
    def reading(self, limit: float | None = None) -> Iterator[Connection]:
        """A connection that sees one consistent state; a statement still running after `limit` seconds is cancelled."""
        with self.database.reading(limit) as connection:
            yield connection

    def write(self, *records: Record, events: Sequence[Event] = ()) -> list[Event]:
        """Writes all records or none; durable on return. Many callers share one flush."""
        return self.commit.submit(lambda state: Entry(events, records=records)).result()

    def event(self, kind: str, actor: str, project: str, run: str = "", **names: Any) -> Event:
        """An event about an action, to be written with the change: names and ids, never a value, a text or a secret."""
        return Event(kind, self.now(), actor, project, run, data={key: _cut(value) for key, value in names.items()})

    @contextmanager
    def holding(self, run: str) -> Iterator[None]:
        """Holds the run's lock, so that no other thread changes the run."""
        with self._held[crc32(run.encode("utf-8", "replace")) % _LOCKS]:
            yield


def named(keys: Iterable[str]) -> dict[str, Any]:
    """Event data about many names: the first of them, and their number."""
    found = list(keys)
    return {"keys": [_cut(key) for key in found[:_NAMED]], "count": len(found)}


def _cut(value: Any) -> Any:
    return value[:_NAME_MAX] if isinstance(value, str) else value
