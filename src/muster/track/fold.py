"""Folds the event log into the record: every job's run, its attempts, checkpoints, data and what happened to it.

How far it has come is written in the transaction that writes what it made, so that nothing is folded twice; a database
from before there was a record is folded from its first event.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Sequence
from typing import Final

from sqlalchemy import Connection, select

from muster.core.errors import MusterError
from muster.core.event import Event
from muster.store import record_tables as tables
from muster.store.base import EventFilter, Record, Store
from muster.track.book import Book
from muster.track.experiments import Experiments
from muster.track.origins import Origins
from muster.track.page import Page
from muster.track.required import Required
from muster.track.rows import put
from muster.track.standing import read_standing

log = logging.getLogger("muster.track")

MARK: Final = "events"  # in track_marks: the last event that is folded
_PAGE: Final = 1000  # events in one transaction, which others wait for
PATIENCE: Final = 5.0  # seconds that a request spends on a log that is far ahead, such as that of an old database
_REST: Final = 0.05  # seconds between two rounds, so that a crowd of commits is folded together
_FALLBACK: Final = 5.0  # seconds after which it looks, whether it was woken or not


class EventFold:
    def __init__(
        self, book: Book, store: Store, experiments: Experiments, required: Required, origins: Origins
    ) -> None:
        self._book, self._store, self._experiments, self._required = book, store, experiments, required
        self._origins = origins
        self._folding = threading.Lock()
        self._woken, self._stopped = threading.Event(), threading.Event()
        self._at: int | None = None
        self._thread = threading.Thread(target=self._run, name="event-fold", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._stopped.set()
        self._woken.set()
        if self._thread.ident is not None:
            self._thread.join()

    def poke(self) -> None:
        """Something was committed. Quick: it is called by whoever commits."""
        self._woken.set()

    def catch_up(self, patience: float | None = PATIENCE) -> bool:
        """Folds what is durable by now, on the caller's thread, for about so many seconds; False: nothing was new."""
        until = None if patience is None else time.monotonic() + patience
        if not self._folding.acquire(timeout=-1 if patience is None else patience):
            return False
        try:
            return self._fold_until(until)
        except BaseException:
            self._at = None  # somebody else may have folded meanwhile: it is read anew
            raise
        finally:
            self._folding.release()

    def _fold_until(self, until: float | None) -> bool:
        folded = False
        if self._at is None:
            self._at = self._read_mark()
        while events := self._store.events(EventFilter(after=self._at, limit=_PAGE)):
            self._fold(events)
            self._at = events[-1].seq
            folded = True
            if until is not None and time.monotonic() > until:
                break
        return folded

    def _run(self) -> None:
        while not self._stopped.is_set():
            self._woken.clear()
            try:
                self.catch_up(None)
            except MusterError as error:
                log.warning("the event log could not be folded into the record, it is tried again: %s", error)
                self._stopped.wait(_FALLBACK)
            except Exception:
                log.exception("folding the event log into the record failed; it is tried again")
                self._stopped.wait(_FALLBACK)
            self._stopped.wait(_REST)
            self._woken.wait(_FALLBACK)

    def _fold(self, events: Sequence[Event]) -> None:
        with self._book.reading() as connection:
            standing = read_standing(connection, list({event.job for event in events if event.job}))
        page = Page(standing, self._experiments, self._origins)
        for event in events:
            page.take(event)
        judged = [run for run in page.judged if self._required.wanted(page.judged[run])]
        records = [page.record(), *(self._required.judge(run, page.judged[run]) for run in judged)]
        self._book.write(*records, _marked(events[-1].seq))

    def _read_mark(self) -> int:
        marks = tables.track_marks.c
        with self._book.reading() as connection:
            return connection.execute(select(marks.value).where(marks.name == MARK)).scalar() or 0


def _marked(seq: int) -> Record:
    def record(connection: Connection) -> None:
        put(connection, tables.track_marks, [{"name": MARK, "value": seq}])

    return record
