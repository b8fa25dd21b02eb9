"""Runs: create, change, hide and read them; parameters and tags with the history of their changes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Table, select

from muster.api.words import FINAL
from muster.core.errors import Conflict, Invalid, NotFound
from muster.core.record_events import RunChanged, RunCreated, RunHidden, RunParams, RunRestored, RunTags
from muster.store import record_tables as tables
from muster.store.base import Record
from muster.store.codec import check_text
from muster.store.insert import add
from muster.track import values
from muster.track.experiments import Experiments
from muster.track.facts import checked, code_columns, flat
from muster.track.record_db import RecordDb, named
from muster.track.rows import Doc, Run, chunks, note_row, patch_run, read_run, run_of, run_row
from muster.track.run_ids import check_facts, checked_id, new_id

__all__ = ["Change", "Run", "Runs"]


@dataclass(frozen=True, slots=True)
class Change:
    """A changed parameter or tag. `old` None: it didn't exist; `new` None: it was removed."""

    id: int
    run: str
    time: float
    actor: str
    attempt: int  # attempt that set the new value; 0 for none
    space: str  # params or tags
    key: str
    old: str | None
    new: str | None


class Runs:
    """`check_required` returns a record that checks the required fields of a run again; see `required.py`."""

    def __init__(self, db: RecordDb, experiments: Experiments) -> None:
        self._db, self._experiments = db, experiments
        self.check_required: values.RequiredCheck = lambda run, project: lambda connection: None

    # --- one run ----------------------------------------------------------------------------------------------------

    def create(
        self,
        *,
        project: str,
        user: str,
        name: str = "",
        kind: str = "train",
        source: str,
        experiment: int | None = None,
        parent: str | None = None,
        created_at: float | None = None,
        started_at: float | None = None,
        ended_at: float | None = None,
        phase: str = "running",
        params: Mapping[str, Any] | None = None,
        tags: Mapping[str, str] | None = None,
        purpose: str = "",
        id: str | None = None,
        doc: Doc | None = None,
        records: Iterable[Record] = (),
    ) -> Run:
        """Creates a run that isn't a job's; `records` are written with it. Raises Conflict if the id is taken."""
        given, labels = checked("parameter", flat(params or {})), checked("tag", tags or {})
        check_facts(name=name, kind=kind, phase=phase, purpose=purpose)
        check_text(project, user, source, parent)
        now = self._db.now()
        begun = created_at if created_at is not None else now
        if phase in ("running", *FINAL) and started_at is None:
            started_at = begun
        if phase in FINAL and ended_at is None:
            ended_at = now
        run = Run(
            new_id(name) if id is None else checked_id(id), project,
            self._experiments.of_project(project) if experiment is None else experiment,
            name, user, kind, source, phase, begun, started_at, ended_at, parent, None, True, (), purpose, 0,
            doc=doc or {}, **code_columns((doc or {}).get("code") or {}),
        )  # fmt: skip
        with self._db.holding(run.id):
            if self.get(run.id) is not None or self._purged(run.id):
                raise Conflict(f"There is, or was, a run {run.id!r} already.", "Leave the id out to get a new one.")
            self._db.write(
                created(run),
                values.params_record(run.id, given, attempt=0, actor=user, now=now),
                values.tags_record(run.id, labels, actor=user, now=now),
                self.check_required(run.id, project),
                *records,
                events=[self._db.event(RunCreated(name, source), user, project, run.id)],
            )
        return run

    def get(self, run: str) -> Run | None:
        with self._db.reading() as connection:
            return read_run(connection, run)

    def need(self, run: str) -> Run:
        """Raises NotFound."""
        found = self.get(run)
        if found is None:
            raise NotFound(f"There is no run {run!r}.", "See `muster runs`.")
        return found

    def many(self, runs: Sequence[str]) -> dict[str, Run]:
        """Runs by id; those that don't exist are left out."""
        found: dict[str, Run] = {}
        with self._db.reading() as connection:
            for part in chunks(runs):
                rows = connection.execute(select(tables.runs).where(tables.runs.c.id.in_(part)))
                found |= {row[0]: run_of(row) for row in rows}
        return found

    def update(
        self,
        run: str,
        *,
        actor: str,
        name: str | None = None,
        phase: str | None = None,
        started_at: float | None = None,
        ended_at: float | None = None,
        purpose: str | None = None,
        experiment: int | None = None,
        doc: Doc | None = None,
    ) -> Run:
        """None leaves a value unchanged; a key of `doc` with None is removed. A job's run has the phase of the job."""
        check_facts(name=name, phase=phase, purpose=purpose)
        with self._db.holding(run):
            old = self.need(run)
            if old.of_job and phase is not None:
                raise Invalid(f"{run} is a job's run: its phase follows the job's.", f"See `muster stop {run}`.")
            columns: dict[str, Any] = {"name": name, "purpose": purpose, "experiment": experiment}
            if not old.of_job:
                columns |= {"phase": phase, "started_at": started_at, "ended_at": ended_at}
            if phase in FINAL and ended_at is None and old.ended_at is None:
                columns["ended_at"] = self._db.now()
            kept = {key: value for key, value in columns.items() if value is not None}
            if phase is not None and phase not in FINAL:
                kept["ended_at"] = None
            records = self._update_records(old, actor, kept, doc)
            if records:
                told = self._db.event(RunChanged(sorted({**kept, **(doc or {})})), actor, old.project, run)
                self._db.write(*records, events=[told])
            return self.need(run)

    def hide(self, run: str, actor: str) -> Run:
        """Hides the run from every list, until it is restored or purged. It still accepts reported data."""
        return self._hidden(run, actor, self._db.now())

    def restore(self, run: str, actor: str) -> Run:
        return self._hidden(run, actor, None)

    # --- parameters and tags ----------------------------------------------------------------------------------------

    def set_params(
        self, run: str, given: Mapping[str, Any], *, attempt: int = 0, actor: str, refuse_change: bool = False
    ) -> None:
        """Sets parameters. A new value of an existing one is stored as a change; `refuse_change` raises Conflict
        instead.
        """
        flattened = checked("parameter", flat(given))
        with self._db.holding(run):
            found = self.need(run)
            if refuse_change:
                self._refuse_changes(run, flattened)
            now = self._db.now()
            self._db.write(
                values.params_record(run, flattened, attempt=attempt, actor=actor, now=now),
                *self._recheck_required(found),
                events=[self._db.event(named(RunParams, flattened), actor, found.project, run)],
            )

    def set_tags(self, run: str, given: Mapping[str, str | None], actor: str) -> None:
        """A value of None removes the tag."""
        checked("tag", {key: value or "" for key, value in given.items()})
        with self._db.holding(run):
            found = self.need(run)
            self._db.write(
                values.tags_record(run, given, actor=actor, now=self._db.now()),
                *self._recheck_required(found),
                events=[self._db.event(named(RunTags, given), actor, found.project, run)],
            )

    def params(self, runs: Sequence[str]) -> dict[str, dict[str, str]]:
        """By run; every requested run has an entry."""
        return self._values(tables.run_params, runs)

    def tags(self, runs: Sequence[str]) -> dict[str, dict[str, str]]:
        return self._values(tables.run_tags, runs)

    def changes(self, run: str) -> list[Change]:
        """Oldest first."""
        table = tables.run_changes
        with self._db.reading() as connection:
            rows = connection.execute(select(table).where(table.c.run == run).order_by(table.c.id)).all()
        return [Change(*row) for row in rows]

    def attempts(self, run: str) -> list[Doc]:
        """What is known of each attempt: number, first_step, nodes, times, exit, environment, parameters."""
        table = tables.run_attempts
        with self._db.reading() as connection:
            rows = connection.execute(select(table).where(table.c.run == run).order_by(table.c.attempt)).all()
        return [{"attempt": row.attempt, "first_step": row.first_step, **values.loaded(row.doc)} for row in rows]

    def saved_steps(self, run: str) -> list[int]:
        """Steps of its checkpoints, in order."""
        table = tables.checkpoints.c
        with self._db.reading() as connection:
            return list(connection.execute(select(table.step).where(table.run == run).order_by(table.step)).scalars())

    def checkpoint_path(self, run: str, step: int) -> str | None:
        """Where its newest checkpoint of this step was saved; None if there is none, or it was pruned."""
        table = tables.checkpoints
        query = select(table.c.path, table.c.doc).where(table.c.run == run, table.c.step == step)
        with self._db.reading() as connection:
            row = connection.execute(query.order_by(table.c.attempt.desc()).limit(1)).one_or_none()
        return None if row is None or values.loaded(row.doc).get("gone_at") else str(row.path)

    # --- helpers ----------------------------------------------------------------------------------------------------

    def _update_records(self, old: Run, actor: str, columns: dict[str, Any], doc: Doc | None) -> list[Record]:
        now, records = self._db.now(), list[Record]()
        if doc and "code" in doc:
            columns |= code_columns(doc["code"] or {})
        if columns or doc:
            records.append(lambda connection: patch_run(connection, old.id, doc, **columns))
        phase = columns.get("phase")
        if phase in FINAL and old.phase not in FINAL:
            row = note_row(old.project, old.id, now, actor, "end", f"Ended: {phase}.", {"phase": phase})
            records.append(lambda connection: add(connection, tables.notes, [row]))
        if phase in FINAL or not old.valid:
            records.append(self.check_required(old.id, old.project))
        return records

    def _hidden(self, run: str, actor: str, since: float | None) -> Run:
        with self._db.holding(run):
            old, now = self.need(run), self._db.now()
            word = "Restored" if since is None else "Hidden"
            row = note_row(old.project, run, now, actor, "change", f"{word} by {actor}.", {"hidden": since is not None})

            def record(connection: Connection) -> None:
                patch_run(connection, run, deleted_at=since)
                add(connection, tables.notes, [row])

            if (old.deleted_at is None) != (since is None):
                data = RunRestored() if since is None else RunHidden()
                self._db.write(record, events=[self._db.event(data, actor, old.project, run)])
            return self.need(run)

    def _refuse_changes(self, run: str, given: Mapping[str, str]) -> None:
        known = self.params([run])[run]
        for key, value in given.items():
            if key in known and known[key] != value:
                raise Conflict(
                    f"The parameter {key!r} of run {run} is {known[key]!r} already; {value!r} was given.",
                    "Log it under another name, or start a new run.",
                )

    def _recheck_required(self, run: Run) -> list[Record]:
        """Checks required fields again if some were missing: they may be set now."""
        return [] if run.valid else [self.check_required(run.id, run.project)]

    def _values(self, table: Table, runs: Sequence[str]) -> dict[str, dict[str, str]]:
        found: dict[str, dict[str, str]] = {run: {} for run in runs}
        with self._db.reading() as connection:
            for part in chunks(list(found)):
                query = select(table.c.run, table.c.key, table.c.value).where(table.c.run.in_(part))
                for run, key, value in connection.execute(query):
                    found[run][key] = value
        return found

    def _purged(self, run: str) -> bool:
        with self._db.reading() as connection:
            return values.purged(connection, run)


def created(run: Run) -> Record:
    """Writes a new run's row, and its purpose as the first note of its logbook."""

    def record(connection: Connection) -> None:
        add(connection, tables.runs, [run_row(run)])
        if run.purpose:
            row = note_row(
                run.project, run.id, run.created_at, run.user, "purpose", run.purpose, mark=f"{run.id}:purpose"
            )
            add(connection, tables.notes, [row])

    return record
