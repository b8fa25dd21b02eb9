"""Access to the record's database: reading, the only way to write, and a lock for each run."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final, TypeVar
from zlib import crc32

from sqlalchemy import Connection

from muster.core.event import Event
from muster.core.payload import Audit
from muster.core.record_events import Keys
from muster.core.state import State
from muster.store.base import Entry, Record
from muster.store.commit import Commit
from muster.store.connect import Database

K = TypeVar("K", bound=Keys)

_NAMED: Final = 20  # keys that an event names
_NAME_MAX: Final = 200  # characters of each
_LOCKS: Final = 256  # shared by runs: enough that two runs rarely wait for each other


def _locks() -> tuple[threading.RLock, ...]:
    return tuple(threading.RLock() for _ in range(_LOCKS))


def _accept(state: State) -> None:
    """Refuses nothing."""


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

    def write(
        self, *records: Record, events: Sequence[Event] = (), check: Callable[[State], None] = _accept
    ) -> list[Event]:
        """Writes all records or none; durable on return. Many callers share one flush. `check` sees the state that they
        are written to, and may refuse it by raising."""

        def propose(state: State) -> Entry:
            check(state)
            return Entry(events, records=records)

        return self.commit.submit(propose).result()

    def event(self, data: Audit, actor: str, project: str, run: str = "") -> Event:
        """An event about an action, to be written with the change. Long names are cut."""
        doc = {key: value[:_NAME_MAX] if isinstance(value, str) else value for key, value in data.to_doc().items()}
        return Event(data.from_doc(doc), self.now(), actor, project, run)

    @contextmanager
    def holding(self, run: str) -> Iterator[None]:
        """Holds the run's lock, so that no other thread changes the run."""
        with self._held[crc32(run.encode("utf-8", "replace")) % _LOCKS]:
            yield


def named(cls: type[K], keys: Iterable[str]) -> K:
    """The payload of an event about many names: the first of them, and their number."""
    found = list(keys)
    return cls([key[:_NAME_MAX] for key in found[:_NAMED]], len(found))
