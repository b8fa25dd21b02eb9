"""Reads the current state of many jobs at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from sqlalchemy import Connection, select

from muster.core.job import Attempt
from muster.store import tables
from muster.store.codec import attempt_from, loads
from muster.track.rows import Doc, chunks


@dataclass(frozen=True, slots=True)
class JobRows:
    """The state of jobs. Events alone would include late reports, which are ignored."""

    jobs: dict[str, Doc] = field(default_factory=dict)  # `Job.to_doc` by id
    attempts: dict[tuple[str, int], Attempt] = field(default_factory=dict)


def read_job_rows(connection: Connection, jobs: Sequence[str]) -> JobRows:
    found, table, attempts = JobRows(), tables.jobs.c, tables.attempts.c
    for part in chunks(jobs):
        for job, doc in connection.execute(select(table.id, table.doc).where(table.id.in_(part))):
            found.jobs[job] = loads(doc)
        for job, number, doc in connection.execute(select(tables.attempts).where(attempts.job.in_(part))):
            found.attempts[(job, number)] = attempt_from(doc)
    return found
