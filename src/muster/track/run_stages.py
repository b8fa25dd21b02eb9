"""Stages of runs: who asked for a review and who approved, which run was made from which, and with what evidence."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from sqlalchemy import Connection, exists, or_, select

from muster.core.errors import Invalid
from muster.core.payload import Audit
from muster.core.record_events import ReviewAsked, RunApproved
from muster.store.base import Record
from muster.store.codec import check_text, dumps, loads
from muster.store.insert import Row, add
from muster.store.record_tables import links, notes, run_stages
from muster.track.record_db import RecordDb
from muster.track.rows import Doc, Run, link_row, note_row

WHY_MAX: Final = 10_000  # characters
ASKED_MAX: Final = 100  # reviews that are listed: the newest
Action = Literal["asked", "approved", "promoted"]


@dataclass(frozen=True, slots=True)
class StageEntry:
    id: int
    time: float
    actor: str
    project: str
    run: str
    stage: str
    action: Action
    job: str
    doc: Doc  # why; of a promotion needs, changes and overridden


class RunStages:
    def __init__(self, db: RecordDb) -> None:
        self._db = db

    def entries(self, run: str) -> list[StageEntry]:
        """What was asked for, approved and promoted of a run, and how it came about itself; oldest first."""
        query = select(run_stages).where(or_(run_stages.c.run == run, run_stages.c.job == run))
        with self._db.reading() as connection:
            rows = connection.execute(query.order_by(run_stages.c.id)).all()
        return [_entry(row) for row in rows]

    def reached(self, run: str) -> frozenset[str]:
        """The stages that a run was made for."""
        query = select(run_stages.c.stage).where(run_stages.c.job == run, run_stages.c.action == "promoted")
        with self._db.reading() as connection:
            return frozenset(connection.execute(query).scalars())

    def asked(self, projects: Collection[str] | None) -> list[StageEntry]:
        """Reviews that somebody asked for and nobody has answered since, the newest first. Of all projects if None."""
        later = run_stages.alias()
        answered = exists().where(
            later.c.run == run_stages.c.run, later.c.stage == run_stages.c.stage, later.c.id > run_stages.c.id
        )
        query = select(run_stages).where(run_stages.c.action == "asked", ~answered)
        if projects is not None:
            query = query.where(run_stages.c.project.in_(projects))
        with self._db.reading() as connection:
            rows = connection.execute(query.order_by(run_stages.c.id.desc()).limit(ASKED_MAX)).all()
        return [_entry(row) for row in rows]

    def ask(self, run: Run, stage: str, user: str, why: str) -> None:
        """Asks for a review."""
        self._say(run, stage, user, why, "asked", f"A review for {stage} is asked for.", ReviewAsked(stage))

    def approve(self, run: Run, stage: str, user: str, why: str) -> None:
        self._say(run, stage, user, why, "approved", f"Approved for {stage}.", RunApproved(stage))

    def _say(self, run: Run, stage: str, user: str, why: str, action: Action, text: str, event: Audit) -> None:
        check_why(why)
        now = self._db.now()
        row = _row(now, user, run.project, run.id, stage, action, "", {"why": why})
        note = note_row(run.project, run.id, now, user, "promotion", f"{text}\n\n{why}", {"stage": stage})

        def record(connection: Connection) -> None:
            add(connection, run_stages, [row])
            add(connection, notes, [note])

        self._db.write(record, events=[self._db.event(event, user, run.project, run.id)])

    def promoted(self, run: Run, stage: str, user: str, job: str, doc: Doc, text: str) -> Record:
        """Written in the transaction that accepts the job: the evidence, the lineage, and a note on both runs."""
        now = self._db.now()
        row = _row(now, user, run.project, run.id, stage, "promoted", job, doc)
        said: dict[str, Any] = {"stage": stage, **doc}
        told = [
            note_row(run.project, run.id, now, user, "promotion", f"Promoted to {stage}: `{job}`.\n\n{text}", said),
            note_row(run.project, job, now, user, "promotion", f"Stage {stage}, from `{run.id}`.\n\n{text}", said),
        ]

        def record(connection: Connection) -> None:
            add(connection, run_stages, [row])
            add(connection, links, [link_row(f"run:{run.id}", f"run:{job}", "promotes", now)])
            add(connection, notes, told)

        return record


def check_why(why: str) -> None:
    check_text(why)
    if not why.strip() or len(why) > WHY_MAX:
        raise Invalid("No reason was given." if not why.strip() else "The reason is too long.",
                      f"Say why in 1 to {WHY_MAX:,} characters: `--why TEXT`.")  # fmt: skip


def _row(time: float, actor: str, project: str, run: str, stage: str, action: Action, job: str, doc: Doc) -> Row:
    return {
        "time": time, "actor": actor, "project": project, "run": run, "stage": stage, "action": action, "job": job,
        "doc": dumps(doc),
    }  # fmt: skip


def _entry(row: Sequence[Any]) -> StageEntry:
    values: list[Any] = [*row[:-1], loads(row[-1])]
    return StageEntry(*values)
