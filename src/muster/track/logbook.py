"""The logbook: notes of users and of Muster on runs and projects, and their export as one document."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import ColumnElement, select

from muster.api.words import NOTE_KINDS
from muster.core.errors import Invalid, NotFound
from muster.core.record_events import NoteAdded
from muster.store import record_tables as tables
from muster.store.codec import check_text, loads
from muster.store.insert import add
from muster.track.record_db import RecordDb
from muster.track.rows import Doc, Run, note_row, read_run

TEXT_MAX: Final = 100_000  # characters of a note
ATTACHMENTS_MAX: Final = 100
_PAGE: Final = 1000  # notes read at a time


@dataclass(frozen=True, slots=True)
class LogbookEntry:
    """A note. `doc` may have `attachments` (paths of the run's artifacts), `step`, `attempt`, `diff`, `reason`."""

    id: int
    project: str
    run: str  # empty: a note on the project
    time: float
    author: str
    kind: str
    text: str  # Markdown
    doc: Doc
    mark: str | None


class Logbook:
    def __init__(self, db: RecordDb) -> None:
        self._db = db

    def add(
        self,
        project: str,
        run: str,
        author: str,
        text: str,
        kind: str = "note",
        attachments: Sequence[str | Mapping[str, Any]] = (),
        step: int | None = None,
        mark: str | None = None,
        doc: Doc | None = None,
        at: float | None = None,
    ) -> LogbookEntry:
        """Adds a note; its text is stored unchanged. A `mark` is written once: a repeated call returns the first note.

        `attachments` are artifacts of the run: paths, or mappings with `path`, `digest` and `bytes`.
        """
        check_text(project, run, author, text, mark, *map(_path, attachments))
        if kind not in NOTE_KINDS:
            raise Invalid(f"An entry of the kind {kind!r}.", f"Use one of {', '.join(NOTE_KINDS)}.")
        if not text.strip() and not attachments:
            raise Invalid("The note is empty.", "Write something.")
        if len(text) > TEXT_MAX or len(attachments) > ATTACHMENTS_MAX:
            raise Invalid(
                f"The note has {len(text):,} characters and {len(attachments)} attachments.",
                f"Use at most {TEXT_MAX:,} and {ATTACHMENTS_MAX}; attach a file for more.",
            )
        beside = {"attachments": list(attachments) or None, "step": step, **(doc or {})}
        kept = {key: value for key, value in beside.items() if value is not None}
        row = note_row(project, run, self._db.now() if at is None else at, author, kind, text, kept, mark)
        found: list[LogbookEntry] = []

        def record(connection: Any) -> None:
            add(connection, tables.notes, [row])
            same = tables.notes.c.mark == mark if mark is not None else tables.notes.c.run == run
            newest = select(tables.notes).where(same).order_by(tables.notes.c.id.desc()).limit(1)
            found.append(_entry(connection.execute(newest).one()))

        with self._db.holding(run):
            if run:
                self._check_there(run)
            self._db.write(record, events=[self._db.event(NoteAdded(), author, project, run)])
        return found[0]

    def _check_there(self, run: str) -> None:
        with self._db.reading() as connection:
            if read_run(connection, run) is None:  # deleted since the caller looked it up
                raise NotFound(f"There is no run {run!r} any more.", "See `muster runs`.")

    def entries(
        self,
        *,
        run: str | None = None,
        project: str | None = None,
        after: int = 0,
        limit: int = 100,
        search: str | None = None,
        kinds: Iterable[str] = (),
        last: bool = False,
    ) -> list[LogbookEntry]:
        """Notes with ids after `after`, sorted by id; with `last`, the newest. `search` is a text, case-insensitive."""
        notes = tables.notes
        where: list[ColumnElement[bool]] = [notes.c.id > after]
        if run is not None:
            where.append(notes.c.run == run)
        if project is not None:
            where.append(notes.c.project == project)
        if search:
            where.append(notes.c.text.icontains(search, autoescape=True) | (notes.c.author == search))
        if chosen := list(kinds):
            where.append(notes.c.kind.in_(chosen))
        order = notes.c.id.desc() if last else notes.c.id
        with self._db.reading() as connection:
            rows = connection.execute(select(notes).where(*where).order_by(order).limit(limit)).all()
        found = [_entry(row) for row in rows]
        return found[::-1] if last else found

    def export(self, *, run: Run | None = None, project: str | None = None) -> str:
        """The whole logbook as a Markdown document: facts first, then the notes by day."""
        found: list[LogbookEntry] = []
        while page := self.entries(
            run=run.id if run else None,
            project=None if run else project,
            after=found[-1].id if found else 0,
            limit=_PAGE,
        ):
            found += page
        lines = _run_head(run, self._data(run)) if run else [f"# Logbook of project {project}", ""]
        day = ""
        for entry in sorted(found, key=lambda entry: (entry.time, entry.id)):
            date, clock = _date(entry.time), time.strftime("%H:%M", time.gmtime(entry.time))
            if date != day:
                lines += [f"## {date}", ""]
                day = date
            lines += _entry_lines(entry, clock, named=run is None)
        return "\n".join(lines).rstrip() + "\n"

    def _data(self, run: Run) -> list[str]:
        links = tables.links.c
        query = select(links.source).where(links.target == f"run:{run.id}", links.role == "reads")
        with self._db.reading() as connection:
            return [ref.removeprefix("data:") for ref in connection.execute(query.order_by(links.source)).scalars()]


def _entry(row: Sequence[Any]) -> LogbookEntry:
    values = list(row)
    values[_DOC] = loads(values[_DOC])
    return LogbookEntry(*values)


def _run_head(run: Run, data: Sequence[str]) -> list[str]:
    facts = {
        "Project": run.project,
        "Owner": run.user,
        "Purpose": run.purpose,
        "Command": f"`{run.doc['command']}`" if run.doc.get("command") else "",
        "Code": f"{run.code_commit[:12]}{' with changes' if run.code_dirty else ''}" if run.code_commit else "",
        "Data": ", ".join(data),
        "Created": _moment(run.created_at),
        "Started": _moment(run.started_at),
        "Ended": _moment(run.ended_at),
        "Phase": run.phase,
        "Attempts": str(run.attempts or ""),
        "Lacks": ", ".join(run.problems),
    }
    name = f" ({run.name})" if run.name and not run.id.startswith(run.name) else ""
    return [f"# Logbook of {run.id}{name}", "", *(f"- **{key}**: {value}" for key, value in facts.items() if value), ""]


def _entry_lines(entry: LogbookEntry, clock: str, named: bool) -> list[str]:
    place = f" · {entry.run}" if named and entry.run else ""
    step = f" · step {entry.doc['step']:,}" if isinstance(entry.doc.get("step"), int) else ""
    kind = "" if entry.kind == "note" else f" · {entry.kind}"
    lines = [f"### {clock} · {entry.author}{place}{kind}{step}", "", entry.text]
    if entry.doc.get("attachments"):
        lines += ["", "Attached: " + ", ".join(f"`{_path(one)}`" for one in entry.doc["attachments"])]
    return [*lines, ""]


def _path(attachment: str | Mapping[str, Any]) -> str:
    return attachment if isinstance(attachment, str) else str(attachment["path"])


def _date(moment: float) -> str:
    return time.strftime("%Y-%m-%d", time.gmtime(moment))


def _moment(moment: float | None) -> str:
    return "" if moment is None else time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(moment))


_DOC: Final = [column.name for column in tables.notes.columns].index("doc")
