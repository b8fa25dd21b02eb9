"""Rows of the record as dataclasses, and helpers for writing them, for both databases."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from sqlalchemy import Connection, Table, select, update

from muster.store import record_tables as tables
from muster.store.base import Record
from muster.store.codec import dumps, loads
from muster.store.insert import Row, add, put

T = TypeVar("T")
_CHUNK: Final = 1000  # ids in one statement

Doc = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Run:
    """A row of `runs`. `doc` has the rest of the captured data.

    Its keys, each present only if known: `number` (of the job), `queue`, `spec`, `command`, `workdir`, `data`,
    `code` (commit, branch, dirty, tree, diff, remote, files, bytes, notes), `environment` (of the first
    attempt), `reason` (of its end), `origin` (of an import); MLflow's own data is under `mlflow`.
    """

    id: str
    project: str
    experiment: int
    name: str
    user: str
    kind: str
    source: str
    phase: str
    created_at: float
    started_at: float | None
    ended_at: float | None
    parent: str | None
    deleted_at: float | None
    valid: bool
    problems: tuple[str, ...]
    purpose: str
    attempts: int
    code_commit: str
    code_branch: str
    code_dirty: bool
    code_tree: str
    doc: Doc = field(default_factory=dict)

    @property
    def of_job(self) -> bool:
        """Whether it is the record of a job: then its phase follows the job's."""
        return self.source == "job"


def run_of(row: Sequence[Any]) -> Run:
    """From a row of `select(tables.runs)`."""
    values = list(row)
    values[_PROBLEMS], values[_DOC] = tuple(loads(values[_PROBLEMS])), loads(values[_DOC])
    return Run(*values)


def run_row(run: Run) -> Row:
    row = {name: getattr(run, name) for name in _RUN_COLUMNS}
    row["problems"], row["doc"] = dumps(run.problems), dumps(run.doc)
    return row


def read_run(connection: Connection, run: str) -> Run | None:
    row = connection.execute(select(tables.runs).where(tables.runs.c.id == run)).one_or_none()
    return None if row is None else run_of(row)


def patch_run(connection: Connection, run: str, doc: Mapping[str, Any] | None = None, **columns: Any) -> None:
    """Changes columns of a run and keys of its document; None removes a key. Does nothing if the run doesn't exist."""
    runs = tables.runs
    if doc:
        old = connection.execute(select(runs.c.doc).where(runs.c.id == run)).scalar_one_or_none()
        if old is None:
            return
        columns["doc"] = dumps(merged(loads(old), doc))
    if columns:
        connection.execute(update(runs).where(runs.c.id == run).values(columns))


def patch_attempt(connection: Connection, run: str, attempt: int, doc: Mapping[str, Any]) -> Doc:
    """Merges keys into the document of an attempt. Returns the new document."""
    attempts = tables.run_attempts
    here = (attempts.c.run == run) & (attempts.c.attempt == attempt)
    old = connection.execute(select(attempts.c.doc).where(here)).scalar_one_or_none()
    new = merged(loads(old) if old is not None else {}, doc)
    row = {"run": run, "attempt": attempt, "doc": dumps(new)}
    put(connection, attempts, [row], only=["doc"])
    return new


def merged(old: Mapping[str, Any], patch: Mapping[str, Any]) -> Doc:
    both = {**old, **patch}
    return {key: value for key, value in both.items() if value is not None}


def note_row(
    project: str,
    run: str,
    time: float,
    author: str,
    kind: str,
    text: str,
    doc: Mapping[str, Any] | None = None,
    mark: str | None = None,
) -> Row:
    return {
        "project": project,
        "run": run,
        "time": time,
        "author": author,
        "kind": kind,
        "text": text,
        "doc": dumps(doc or {}),
        "mark": mark,
    }


def link_row(source: str, target: str, role: str, time: float, doc: Mapping[str, Any] | None = None) -> Row:
    return {"source": source, "target": target, "role": role, "time": time, "doc": dumps(doc or {})}


def adding(table: Table, rows: Sequence[Row]) -> Record:
    """`add` as a record."""
    return lambda connection: add(connection, table, rows)


def chunks(items: Sequence[T], size: int = _CHUNK) -> Iterator[Sequence[T]]:
    """Parts that are small enough for one statement."""
    for start in range(0, len(items), size):
        yield items[start : start + size]


_RUN_COLUMNS: Final = tuple(column.name for column in tables.runs.columns)
_PROBLEMS: Final = _RUN_COLUMNS.index("problems")
_DOC: Final = _RUN_COLUMNS.index("doc")
