"""All parts of the record, made once for the server that leads."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from muster.store.base import Store
from muster.store.commit import Commit
from muster.track.book import Book


class Tracking:
    """`home` is the server's folder; what is too large for the database is kept under it unless told otherwise."""

    def __init__(self, book: Book, home: Path) -> None:
        self.book, self.home = book, home

    def start(self) -> None:
        """Begins the work that goes on beside the requests."""

    def close(self) -> None: ...


def open_tracking(store: Store, commit: Commit, now: Callable[[], float], home: Path) -> Tracking | None:
    """None where the store has no database to keep a record in."""
    return Tracking(Book(store.database, commit, now), home) if store.database is not None else None
