"""Rows of the record as dataclasses, and the few statements that every part writes them with, on either database."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from sqlalchemy import Connection, Dialect, Table, select, update
from sqlalchemy.dialects import postgresql, sqlite

from muster.store import record_tables as tables
from muster.store.base import Record
from muster.store.codec import dumps, loads

T = TypeVar("T")
_CHUNK: Final = 1000  # ids in one statement

Doc = dict[str, Any]
Row = dict[str, Any]
Statement = tuple[str, list[str]]  # SQL, and its columns in the order in which they are bound


@dataclass(frozen=True, slots=True)
class Run:
    """A row of `runs`. `doc` holds the rest of what was captured.

    Its keys, each there only when known: `number` (of the job), `queue`, `spec`, `command`, `workdir`, `data`,
    `template`, `code` (commit, branch, dirty, tree, diff, remote, files, bytes, notes), `environment` (of the first
    attempt), `reason` (behind its end), `origin` (of an import); MLflow's own are under `mlflow`.
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


def add(connection: Connection, table: Table, rows: Sequence[Row]) -> None:
    """Inserts rows that have the same columns; one that is there already stays as it is."""
    if rows:
        _run(connection, _statement(connection.dialect, table, tuple(rows[0]), None), rows)


def put(connection: Connection, table: Table, rows: Sequence[Row], only: Iterable[str] = ()) -> None:
    """Inserts; of a row that is there already the columns `only`, or all that are given, are replaced."""
    if rows:
        _run(connection, _statement(connection.dialect, table, tuple(rows[0]), tuple(only)), rows)


def patch_run(connection: Connection, run: str, doc: Mapping[str, Any] | None = None, **columns: Any) -> None:
    """Changes columns of a run, and keys of its document; a key given as None goes. Nothing for a run that is gone."""
    runs = tables.runs
    if doc:
        old = connection.execute(select(runs.c.doc).where(runs.c.id == run)).scalar_one_or_none()
        if old is None:
            return
        columns["doc"] = dumps(merged(loads(old), doc))
    if columns:
        connection.execute(update(runs).where(runs.c.id == run).values(columns))


def patch_attempt(connection: Connection, run: str, attempt: int, doc: Mapping[str, Any]) -> Doc:
    """Merges keys into the document of an attempt, and returns it as it then is."""
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
    """As many as one statement may name."""
    for start in range(0, len(items), size):
        yield items[start : start + size]


def _run(connection: Connection, statement: Statement, rows: Sequence[Row]) -> None:
    """Rows go to the driver as tuples: SQLAlchemy would take longer over each than the database does."""
    sql, order = statement
    connection.exec_driver_sql(sql, [tuple(row[name] for name in order) for row in rows])


def _statement(dialect: Dialect, table: Table, names: tuple[str, ...], only: tuple[str, ...] | None) -> Statement:
    """The SQL and the order of its columns, compiled once; `only` None leaves rows that are there alone."""
    key = (dialect.name, table.name, names, only)
    if key not in _STATEMENTS:
        make: Any = sqlite.insert if dialect.name == "sqlite" else postgresql.insert
        statement = make(table)
        if only is None:
            statement = statement.on_conflict_do_nothing()
        else:
            keys = [column.name for column in table.primary_key]
            replaced = only or tuple(name for name in names if name not in keys)
            values = {name: statement.excluded[name] for name in replaced}
            statement = statement.on_conflict_do_update(index_elements=keys, set_=values)
        compiled = statement.compile(dialect=dialect, column_keys=list(names))
        order = list(compiled.positiontup or ())
        assert sorted(order) == sorted(names), "every column of a row is bound once"
        _STATEMENTS[key] = (str(compiled), order)
    return _STATEMENTS[key]


_RUN_COLUMNS: Final = tuple(column.name for column in tables.runs.columns)
_PROBLEMS: Final = _RUN_COLUMNS.index("problems")
_DOC: Final = _RUN_COLUMNS.index("doc")
_STATEMENTS: Final[dict[Any, Statement]] = {}
