"""Folds the event log into the record: every job's run, its attempts, checkpoints, data sets and logbook notes."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from sqlalchemy import Connection, select

from muster.core.event import Event
from muster.store import record_tables as tables
from muster.store.base import Entry
from muster.track.event_rows import HANDLED, EventRows
from muster.track.job_rows import read_job_rows
from muster.track.record_db import RecordDb
from muster.track.required import Required
from muster.track.rows import chunks
from muster.track.submitted import SubmittedJobs


class EventFold:
    """The fold of the follower `record`."""

    def __init__(self, db: RecordDb, submitted: SubmittedJobs, required: Required) -> None:
        self._db, self._submitted, self._required = db, submitted, required

    def fold(self, events: Sequence[Event]) -> Entry:
        with self._db.reading() as connection:
            missing = _missing(connection, [event.job for event in events if event.kind == "job.submitted"])
            wanted = [event for event in events if self._concerns(event, missing)]
            if not wanted:
                return Entry()
            jobs = read_job_rows(connection, list({event.job for event in wanted}))
        rows = EventRows(jobs, self._submitted, missing)
        for event in wanted:
            rows.take(event)
        checked = [run for run in rows.to_check if self._required.wanted(rows.to_check[run])]
        return Entry(records=[rows.record(), *(self._required.check(run, rows.to_check[run]) for run in checked)])

    def _concerns(self, event: Event, missing: Collection[str]) -> bool:
        """Whether an event matters.

        The rows of a submitted job are written with it, so its event matters only if the run is missing or its project
        requires fields.
        """
        if event.kind == "job.submitted":
            return event.job in missing or bool(self._required.wanted(event.project))
        return type(event.data) in HANDLED


def _missing(connection: Connection, jobs: Sequence[str]) -> set[str]:
    """The jobs that have no run."""
    runs, found = tables.runs.c.id, set[str]()
    for part in chunks(jobs):
        found.update(connection.execute(select(runs).where(runs.in_(part))).scalars())
    return set(jobs) - found
