"""MLflow's search over runs: translates clauses to SQL and returns one page of rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import (
    ColumnElement,
    Select,
    String,
    and_,
    case,
    cast,
    exists,
    func,
    literal,
    not_,
    or_,
    select,
)

from muster.store.record_tables import experiments, links, metric_series, run_params, run_tags, runs
from muster.track.facts import number_of
from muster.track.mlflow.faults import Fault
from muster.track.mlflow.filters import Clause, Order
from muster.track.mlflow.names import COMMIT, OURS, PARENT, RUN_NAME, SOURCE, STATUS, USER
from muster.track.query.functions import Dialect
from muster.track.query.sql import SHAPES

WRITER: Final = 0  # the rank whose series are the run's
Condition = ColumnElement[bool]
_STARTED: Final = func.coalesce(runs.c.started_at, runs.c.created_at)
_STATUS: Final = case(STATUS, value=runs.c.phase, else_="RUNNING")
COMPARE: Final[dict[str, Callable[[Any, Any], Condition]]] = {
    **SHAPES,
    "IN": lambda column, value: column.in_(value),
    "NOT IN": lambda column, value: column.not_in(value),
}
_OF_COLUMNS: Final = {PARENT: runs.c.parent, USER: runs.c.user, COMMIT: runs.c.code_commit}
# Columns that a run's view needs; the document only for runs that may have MLflow data in it.
INFO: Final = (
    runs.c.id,
    runs.c.experiment,
    runs.c.name,
    runs.c.user,
    runs.c.phase,
    _STARTED.label("started"),
    runs.c.ended_at,
    runs.c.deleted_at,
    experiments.c.artifacts,
    experiments.c.deleted_at.label("experiment_deleted_at"),
    runs.c.parent,
    runs.c.code_commit,
    case((runs.c.source == "job", "{}"), else_=runs.c.doc).label("doc"),
    runs.c.project,
    runs.c.source,
)


@dataclass(frozen=True, slots=True)
class RunQuery:
    """A query for runs; `projects` None means all."""

    experiments: Sequence[int]
    clauses: Sequence[Clause]
    orders: Sequence[Order]
    view: str
    projects: Sequence[str] | None
    limit: int
    offset: int


def one_run(run: str) -> Select[Any]:
    return _rows().where(runs.c.id == run)


def search_runs(want: RunQuery, kind: str) -> Select[Any]:
    """Rows of INFO, one more than the limit to show whether there are more. `kind` is the database's."""
    statement = _rows().where(runs.c.experiment.in_(want.experiments), *_seen(want))
    statement = statement.where(*(_condition(clause, kind) for clause in want.clauses))
    ordering: list[ColumnElement[Any]] = []
    for number, order in enumerate(want.orders):
        statement, terms = _ordered(statement, order, number, kind)
        ordering += terms
    if not any(order.key == "start_time" and order.kind == "attribute" for order in want.orders):
        ordering.append(_STARTED.desc())
    return statement.order_by(*ordering, runs.c.id).limit(want.limit + 1).offset(want.offset)


def _rows() -> Select[Any]:
    return select(*INFO).join_from(runs, experiments, experiments.c.id == runs.c.experiment, isouter=True)


def _seen(want: RunQuery) -> list[Condition]:
    gone = or_(runs.c.deleted_at.is_not(None), experiments.c.deleted_at.is_not(None))
    found = [] if want.view == "ALL" else [~gone if want.view == "ACTIVE_ONLY" else gone]
    return found if want.projects is None else [*found, runs.c.project.in_(want.projects)]


def _condition(clause: Clause, kind: str) -> Condition:
    if clause.kind == "metric":
        return runs.c.id.in_(_metrics(clause))
    if clause.kind == "dataset":
        return _dataset(clause, kind)
    if clause.kind == "attribute" or (clause.kind == "tag" and clause.key == RUN_NAME):
        return _attribute(clause, kind)
    if clause.kind == "tag" and clause.key in _OF_COLUMNS:
        return _known_tag(clause, kind)
    table = run_params if clause.kind == "parameter" else run_tags
    found = select(table.c.run).where(table.c.key == clause.key)
    if clause.op in ("IS NULL", "IS NOT NULL"):
        return runs.c.id.in_(found) if clause.op == "IS NOT NULL" else runs.c.id.not_in(found)
    found = found.where(compared(table.c.value, clause.op, clause.value, kind))
    if table is run_params and clause.op == "=" and (number := number_of(str(clause.value))) is not None:
        found = found.where(table.c.number == number)  # the index has the number, not the text
    return runs.c.id.in_(found)


def _known_tag(clause: Clause, kind: str) -> Condition:
    """A tag that MLflow's clients set, and that other runs have in a column; see `views`."""
    column, tags = _OF_COLUMNS[clause.key], run_tags.c
    given = select(tags.run).where(tags.key == clause.key)
    filled = and_(runs.c.source != SOURCE, column.is_not(None), column != "", runs.c.id.not_in(given))
    if clause.op in ("IS NULL", "IS NOT NULL"):
        there = or_(runs.c.id.in_(given), filled)
        return there if clause.op == "IS NOT NULL" else not_(there)
    matching = given.where(compared(tags.value, clause.op, clause.value, kind))
    return or_(runs.c.id.in_(matching), and_(filled, compared(column, clause.op, clause.value, kind)))


def _metrics(clause: Clause) -> Select[Any]:
    table = metric_series.c
    found = COMPARE[clause.op](table.last, clause.value)
    if clause.op == "!=":
        found = or_(found, table.last_nan)  # a NaN differs from every number
    return select(table.run).where(table.name == clause.key, table.rank == WRITER, found)


def _attribute(clause: Clause, kind: str) -> Condition:
    if clause.op == "IS NOT NULL" or clause.op == "IS NULL":
        return literal(clause.op == "IS NOT NULL")  # every run has a name
    column, scale = _column("run_name" if clause.kind == "tag" else clause.key, kind)
    if scale != 1:
        # Times are stored in seconds; rounded to milliseconds, because clauses are in milliseconds.
        return COMPARE[clause.op](func.round(column * scale), clause.value)
    return compared(column, clause.op, clause.value, kind)


def _column(key: str, kind: str) -> tuple[ColumnElement[Any], int]:
    """The column of an attribute, and its factor."""
    if key == "user_id":
        return func.coalesce(Dialect(kind).json(INFO[12], "mlflow", "user_id"), runs.c.user), 1
    if key == "artifact_uri":
        ours = literal(f"{OURS}/") + cast(runs.c.experiment, String)
        root = case((experiments.c.artifacts == "", ours), else_=experiments.c.artifacts)
        return root + "/" + runs.c.id + "/artifacts", 1
    known: dict[str, tuple[ColumnElement[Any], int]] = {
        "run_id": (runs.c.id, 1),
        "run_name": (runs.c.name, 1),
        "status": (_STATUS, 1),
        "start_time": (_STARTED, 1000),
        "end_time": (runs.c.ended_at, 1000),
    }
    return known[key]


def _dataset(clause: Clause, kind: str) -> Condition:
    name, digest, version, context = (
        Dialect(kind).json(links.c.doc, key) for key in ("name", "digest", "version", "context")
    )
    columns = {
        "name": func.coalesce(name, func.substr(links.c.source, 6)),
        "digest": func.coalesce(digest, version),
        "context": context,
    }
    return exists().where(
        links.c.target == literal("run:") + runs.c.id,
        links.c.role == "reads",
        links.c.source.like("data:%"),
        compared(columns[clause.key], clause.op, clause.value, kind),
    )


def compared(column: ColumnElement[Any], op: str, value: Any, kind: str) -> Condition:
    if op in ("LIKE", "ILIKE"):
        return Dialect(kind).like(column, str(value), op == "ILIKE")
    return COMPARE[op](column, value)


def _ordered(
    statement: Select[Any], order: Order, number: int, kind: str
) -> tuple[Select[Any], list[ColumnElement[Any]]]:
    """Joins the table to order by, and returns the terms. Missing values come last in both directions."""
    if order.kind == "dataset":
        raise Fault(f"Invalid identifier type '{order.kind}'")
    if order.kind == "attribute" or (order.kind == "tag" and order.key == RUN_NAME):
        column, _ = _column("run_name" if order.kind == "tag" else order.key, kind)
        return statement, [case((column.is_(None), 1), else_=0), _directed(column, order)]
    if order.kind == "metric":
        series = metric_series.alias(f"order_{number}")
        on = and_(series.c.run == runs.c.id, series.c.name == order.key, series.c.rank == WRITER)
        missing = case((series.c.last_nan, 1), (series.c.last.is_(None), 2), else_=0)
        return statement.outerjoin(series, on), [missing, _directed(series.c.last, order)]
    table = (run_params if order.kind == "parameter" else run_tags).alias(f"order_{number}")
    joined = statement.outerjoin(table, and_(table.c.run == runs.c.id, table.c.key == order.key))
    return joined, [case((table.c.value.is_(None), 1), else_=0), _directed(table.c.value, order)]


def _directed(column: ColumnElement[Any], order: Order) -> ColumnElement[Any]:
    return column.asc() if order.rising else column.desc()
