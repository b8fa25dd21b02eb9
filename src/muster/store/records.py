"""Runs the record statements of one transaction. An entry whose statements fail is rolled back alone.

All run under one savepoint. Only if one fails, each entry gets its own savepoint: a batch in which all succeed costs
two short statements more.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from sqlalchemy import Connection

from muster.core.errors import RecordFailed, Unavailable
from muster.core.event import Event
from muster.core.record_events import RecordRefused
from muster.store.base import Entry, SetAside
from muster.store.codec import dumps, storable
from muster.store.db_errors import is_passing
from muster.store.insert import add_all

log = logging.getLogger("muster.store")

_ERROR_MAX: Final = 500  # characters


@dataclass(frozen=True, slots=True)
class Recorded:
    """An entry with records. `number` is the index of its proposal in the batch; `events` are its stamped events."""

    number: int
    entry: Entry
    events: Sequence[Event]


@dataclass(frozen=True, slots=True)
class Failure:
    """An entry whose records the database refused."""

    recorded: Recorded
    error: RecordFailed

    @property
    def number(self) -> int:
        return self.recorded.number

    @property
    def refused(self) -> bool:
        """Whether nothing of the entry is written: it has no `origin`, and no events that change the state."""
        return self.recorded.entry.origin is None and all(event.data.AUDIT for event in self.recorded.events)

    def aside(self) -> list[SetAside]:
        """What is set aside of the entry: the bytes that it came from, or else its rows."""
        entry, events = self.recorded.entry, self.recorded.events
        if entry.origin is not None:
            found = entry.origin()
        else:
            rows = _rows_text([[table.name, row] for table, row in entry.rows])
            found = [SetAside(event.kind, event.job, event.attempt, rows, time=event.time) for event in events]
        return [replace(one, error=self.error.message) for one in found]

    def events(self) -> Iterator[tuple[str, str, int]]:
        """Replacements for the events of a refused entry: kind, data and seq."""
        for event in self.recorded.events:
            refused = RecordRefused(event.kind, self.error.message)
            yield refused.KIND, dumps(refused.to_log()), event.seq


def run_records(connection: Connection, entries: Sequence[Recorded]) -> list[Failure]:
    """Raises errors that no record caused, such as a full disk: then nothing of the transaction is written."""
    if not entries or _run(connection, entries) is None:
        return []
    found = ((each, _run(connection, [each])) for each in entries)
    failures = [Failure(each, error) for each, error in found if error is not None]
    for failure in failures:
        what = "refused" if failure.refused else "set aside"
        log.error("a write of the record was %s: %s", what, failure.error.message, exc_info=failure.error.__cause__)
    return failures


def _run(connection: Connection, entries: Sequence[Recorded]) -> RecordFailed | None:
    try:
        with connection.begin_nested():
            add_all(connection, (row for each in entries for row in each.entry.rows))
            for each in entries:
                for record in each.entry.records:
                    record(connection)
    except Unavailable:
        raise
    except Exception as error:
        if is_passing(error):
            raise
        detail = storable(f"{type(error).__name__}: {error}".splitlines()[0][:_ERROR_MAX])
        failed = RecordFailed(f"The record could not be written ({detail}).", "See the server's log, and report it.")
        failed.__cause__ = error
        return failed
    return None


def _rows_text(rows: list[list[Any]]) -> bytes:
    """The rows as JSON, or as Python where JSON can't hold them: bytes, or half a surrogate pair."""
    try:
        return dumps(rows).encode()
    except ValueError:
        return repr(rows).encode("utf-8", "backslashreplace")
