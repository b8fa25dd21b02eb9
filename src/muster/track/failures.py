"""Reads the attempts of a period with the code of their runs, and how long saves took, for `monitor.failures`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from sqlalchemy import select

from muster.core.job import Attempt
from muster.store import record_tables as records
from muster.store import tables
from muster.store.codec import attempt_from, loads
from muster.track.record_db import RecordDb

ATTEMPTS_MAX: Final = 20_000  # of the newest runs
SAVES_MAX: Final = 1_000
_SHORT: Final = 12  # characters of a commit


def attempts_since(db: RecordDb, projects: Sequence[str] | None, since: float) -> list[tuple[Attempt, str]]:
    """The attempts of runs that were not over before `since`, the newest runs first, each with its code.

    `projects`: None for all.
    """
    runs, attempts = records.runs.c, tables.attempts.c
    where = [runs.id == attempts.job, runs.ended_at.is_(None) | (runs.ended_at >= since)]
    if projects is not None:
        where.append(runs.project.in_(projects))
    query = select(attempts.doc, runs.code_commit, runs.code_dirty, runs.code_tree).where(*where)
    with db.reading() as connection:
        rows = connection.execute(query.order_by(runs.created_at.desc(), attempts.number.desc()).limit(ATTEMPTS_MAX))
        return [(attempt_from(doc), code_version(commit, dirty, tree)) for doc, commit, dirty, tree in rows]


def save_seconds(db: RecordDb, projects: Sequence[str] | None, since: float) -> list[float]:
    """How long the newest saves took."""
    runs, saved = records.runs.c, records.checkpoints.c
    where = [runs.id == saved.run, saved.time >= since]
    if projects is not None:
        where.append(runs.project.in_(projects))
    query = select(saved.doc).where(*where).order_by(saved.time.desc()).limit(SAVES_MAX)
    with db.reading() as connection:
        found = [loads(doc).get("seconds") for doc in connection.execute(query).scalars()]
    return [float(seconds) for seconds in found if isinstance(seconds, int | float) and 0 <= seconds < 1e9]


def code_version(commit: str, dirty: bool, tree: str) -> str:
    """The version of the code; two trees with changes on the same commit differ."""
    if commit and not dirty:
        return commit[:_SHORT]
    return f"{commit[:_SHORT]} with changes {tree[:_SHORT]}".strip() if tree or commit else ""
