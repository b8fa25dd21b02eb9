"""What every part of the record shares: where it is read, the one way to write it, and a lock for each run."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final
from zlib import crc32

from sqlalchemy import Connection

from muster.core.event import Event
from muster.store.base import Entry, Record
from muster.store.commit import Commit
from muster.store.connect import Database

_LOCKS: Final = 256  # runs share them: enough that two runs rarely wait for each other


def _locks() -> tuple[threading.RLock, ...]:
    return tuple(threading.RLock() for _ in range(_LOCKS))


@dataclass(frozen=True, slots=True)
class Book:
    """Only the server that leads has one, so whoever holds a run's lock may read, decide and write."""

    database: Database
    commit: Commit
    now: Callable[[], float]
    _held: tuple[threading.RLock, ...] = field(default_factory=_locks)

    @contextmanager
    def reading(self, limit: float | None = None) -> Iterator[Connection]:
        """A connection that sees one moment; what still runs after `limit` seconds is ended."""
        with self.database.reading(limit) as connection:
            yield connection

    def write(self, *records: Record, events: Sequence[Event] = ()) -> list[Event]:
        """All of it or nothing; durable on return. Many callers share one flush."""
        return self.commit.submit(lambda state: Entry(events, records=records)).result()

    @contextmanager
    def holding(self, run: str) -> Iterator[None]:
        """Nobody else changes the run meanwhile."""
        with self._held[crc32(run.encode("utf-8", "replace")) % _LOCKS]:
            yield
