"""Folds the event log into the record: every job's run, its attempts, checkpoints, data and what happened to it."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection, select

from muster.core.event import Event
from muster.store import record_tables as tables
from muster.store.base import Entry
from muster.track.book import Book
from muster.track.page import Page
from muster.track.required import Required
from muster.track.rows import chunks
from muster.track.standing import read_standing
from muster.track.submitted import SubmittedJobs


class EventFold:
    """The fold of the follower `record`."""

    def __init__(self, book: Book, submitted: SubmittedJobs, required: Required) -> None:
        self._book, self._submitted, self._required = book, submitted, required

    def fold(self, events: Sequence[Event]) -> Entry:
        with self._book.reading() as connection:
            standing = read_standing(connection, list({event.job for event in events if event.job}))
            missing = _missing(connection, [event.job for event in events if event.kind == "job.submitted"])
        page = Page(standing, self._submitted, missing)
        for event in events:
            page.take(event)
        if page.empty:
            return Entry()
        judged = [run for run in page.judged if self._required.wanted(page.judged[run])]
        return Entry(records=[page.record(), *(self._required.judge(run, page.judged[run]) for run in judged)])


def _missing(connection: Connection, jobs: Sequence[str]) -> set[str]:
    """Those that have no run."""
    runs, found = tables.runs.c.id, set[str]()
    for part in chunks(jobs):
        found.update(connection.execute(select(runs).where(runs.in_(part))).scalars())
    return set(jobs) - found
