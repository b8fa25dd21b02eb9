"""Stages of runs: who approved what, which run was made from which, and with what evidence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from sqlalchemy import Connection, or_, select

from muster.core.errors import Invalid
from muster.core.record_events import RunApproved
from muster.store.base import Record
from muster.store.codec import check_text, dumps, loads
from muster.store.insert import Row, add
from muster.store.record_tables import links, notes, run_stages
from muster.track.record_db import RecordDb
from muster.track.rows import Doc, Run, link_row, note_row

WHY_MAX: Final = 10_000  # characters
Action = Literal["approved", "promoted"]


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
        """What was approved and promoted of a run, and how it came about itself; oldest first."""
        query = select(run_stages).where(or_(run_stages.c.run == run, run_stages.c.job == run))
        with self._db.reading() as connection:
            rows = connection.execute(query.order_by(run_stages.c.id)).all()
        return [_entry(row) for row in rows]

    def reached(self, run: str) -> frozenset[str]:
        """The stages that a run was made for."""
        query = select(run_stages.c.stage).where(run_stages.c.job == run, run_stages.c.action == "promoted")
        with self._db.reading() as connection:
            return frozenset(connection.execute(query).scalars())

    def approve(self, run: Run, stage: str, user: str, why: str) -> None:
        check_why(why)
        now = self._db.now()
        row = _row(now, user, run.project, run.id, stage, "approved", "", {"why": why})
        note = note_row(
            run.project, run.id, now, user, "promotion", f"Approved for {stage}.\n\n{why}", {"stage": stage}
        )

        def record(connection: Connection) -> None:
            add(connection, run_stages, [row])
            add(connection, notes, [note])

        self._db.write(record, events=[self._db.event(RunApproved(stage), user, run.project, run.id)])

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
