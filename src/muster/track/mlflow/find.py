"""MLflow's search over the tables of the record: clauses become SQL, one page of rows comes back."""

from __future__ import annotations

import base64
import binascii
import json
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
    or_,
    select,
)
from sqlalchemy.dialects.postgresql import JSONB

from muster.store.record_tables import experiments, links, metric_series, run_params, run_tags, runs
from muster.track.facts import number_of
from muster.track.mlflow.faults import Fault
from muster.track.mlflow.filters import Clause, Order
from muster.track.mlflow.names import OURS, RUN_NAME, STATUS

WRITER: Final = 0  # the rank whose series are the run's
Condition = ColumnElement[bool]
_STARTED: Final = func.coalesce(runs.c.started_at, runs.c.created_at)
_STATUS: Final = case(STATUS, value=runs.c.phase, else_="RUNNING")
_COMPARE: Final[dict[str, Callable[[Any, Any], Condition]]] = {
    "=": lambda column, value: column == value,
    "!=": lambda column, value: column != value,
    "<": lambda column, value: column < value,
    "<=": lambda column, value: column <= value,
    ">": lambda column, value: column > value,
    ">=": lambda column, value: column >= value,
    "IN": lambda column, value: column.in_(value),
    "NOT IN": lambda column, value: column.not_in(value),
}
# What a run's view needs of its row; the document only where it may hold MLflow's own.
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
class Want:
    """A question about runs; `projects` None means all."""

    experiments: Sequence[int]
    clauses: Sequence[Clause]
    orders: Sequence[Order]
    view: str
    projects: Sequence[str] | None
    limit: int
    offset: int


def one_run(run: str) -> Select[Any]:
    return _rows().where(runs.c.id == run)


def search_runs(want: Want, kind: str) -> Select[Any]:
    """Rows of INFO, one more than the limit so that it is known whether there are more. `kind` is the database's."""
    statement = _rows().where(runs.c.experiment.in_(want.experiments), *_seen(want))
    statement = statement.where(*(_condition(clause, kind) for clause in want.clauses))
    ordering: list[ColumnElement[Any]] = []
    for number, order in enumerate(want.orders):
        statement, terms = _ordered(statement, order, number, kind)
        ordering += terms
    if not any(order.key == "start_time" and order.kind == "attribute" for order in want.orders):
        ordering.append(_STARTED.desc())
    return statement.order_by(*ordering, runs.c.id).limit(want.limit + 1).offset(want.offset)


def search_experiments(
    clauses: Sequence[Clause], orders: Sequence[Order], view: str, projects: Sequence[str] | None, kind: str
) -> Select[Any]:
    table = experiments.c
    where: list[Condition] = [_experiment_condition(clause, kind) for clause in clauses]
    if projects is not None:
        where.append(table.project.in_(projects))
    if view != "ALL":
        where.append(table.deleted_at.is_(None) if view == "ACTIVE_ONLY" else table.deleted_at.is_not(None))
    columns = {
        "name": table.name,
        "experiment_id": table.id,
        "creation_time": table.created_at,
        "last_update_time": table.updated_at,
    }
    given = [(columns[order.key], order.rising) for order in orders if order.kind == "attribute"]
    if len(given) != len(orders):
        raise Fault("Invalid order_by entity: tag")
    given = given or [(columns["creation_time"], False), (columns["experiment_id"], True)]
    if not any(order.key == "experiment_id" for order in orders) and orders:
        given.append((table.id, False))
    ordering = [column.asc() if rising else column.desc() for column, rising in given]
    return select(experiments).where(*where).order_by(*ordering)


def page_token(offset: int) -> str:
    return base64.b64encode(json.dumps({"offset": offset}).encode()).decode()


def page_offset(token: str | None) -> int:
    if not token:
        return 0
    try:
        decoded = base64.b64decode(token)
    except (binascii.Error, ValueError):
        raise Fault("Invalid page token, could not base64-decode") from None
    try:
        return max(0, int(json.loads(decoded)["offset"]))
    except (ValueError, KeyError, TypeError, OverflowError):
        raise Fault(f"Invalid page token, decoded value={decoded!r}") from None


def json_text(column: ColumnElement[Any], kind: str, *path: str) -> ColumnElement[Any]:
    """A text out of a JSON document."""
    if kind == "sqlite":
        return func.json_extract(column, "$." + ".".join(f'"{part}"' for part in path))
    return func.jsonb_extract_path_text(cast(column, JSONB), *path)


def _rows() -> Select[Any]:
    return select(*INFO).join_from(runs, experiments, experiments.c.id == runs.c.experiment, isouter=True)


def _seen(want: Want) -> list[Condition]:
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
    table = run_params if clause.kind == "parameter" else run_tags
    found = select(table.c.run).where(table.c.key == clause.key)
    if clause.op in ("IS NULL", "IS NOT NULL"):
        return runs.c.id.in_(found) if clause.op == "IS NOT NULL" else runs.c.id.not_in(found)
    found = found.where(_compared(table.c.value, clause.op, clause.value, kind))
    if table is run_params and clause.op == "=" and (number := number_of(str(clause.value))) is not None:
        found = found.where(table.c.number == number)  # the index has the number, not the text
    return runs.c.id.in_(found)


def _metrics(clause: Clause) -> Select[Any]:
    table = metric_series.c
    found = _COMPARE[clause.op](table.last, clause.value)
    if clause.op == "!=":
        found = or_(found, table.last_nan)  # a NaN differs from everything
    return select(table.run).where(table.name == clause.key, table.rank == WRITER, found)


def _attribute(clause: Clause, kind: str) -> Condition:
    if clause.op == "IS NOT NULL" or clause.op == "IS NULL":
        return literal(clause.op == "IS NOT NULL")  # every run has a name
    column, scale = _column("run_name" if clause.kind == "tag" else clause.key, kind)
    if scale != 1:
        # Times are seconds here; half a millisecond either way is the same millisecond.
        return _COMPARE[clause.op](func.round(column * scale), clause.value)
    return _compared(column, clause.op, clause.value, kind)


def _column(key: str, kind: str) -> tuple[ColumnElement[Any], int]:
    """What an attribute is in the table, and by what to multiply it."""
    if key == "user_id":
        return func.coalesce(json_text(INFO[12], kind, "mlflow", "user_id"), runs.c.user), 1
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
    doc = links.c.doc
    columns = {
        "name": func.coalesce(json_text(doc, kind, "name"), func.substr(links.c.source, 6)),
        "digest": func.coalesce(json_text(doc, kind, "digest"), json_text(doc, kind, "version")),
        "context": json_text(doc, kind, "context"),
    }
    return exists().where(
        links.c.target == literal("run:") + runs.c.id,
        links.c.role == "reads",
        links.c.source.like("data:%"),
        _compared(columns[clause.key], clause.op, clause.value, kind),
    )


def _experiment_condition(clause: Clause, kind: str) -> Condition:
    table = experiments.c
    if clause.kind == "tag":
        found = json_text(table.tags, kind, clause.key)
        if clause.op in ("IS NULL", "IS NOT NULL"):
            return found.is_(None) if clause.op == "IS NULL" else found.is_not(None)
        return _compared(found, clause.op, clause.value, kind)
    if clause.key == "experiment_id":
        return _COMPARE[clause.op](table.id, _numbers(clause))
    if clause.key == "name":
        return _compared(table.name, clause.op, clause.value, kind)
    column = table.created_at if clause.key == "creation_time" else table.updated_at
    if isinstance(clause.value, float):
        raise Fault(f"Invalid value for numeric attribute '{clause.key}': '{clause.value}'")
    return _COMPARE[clause.op](func.round(column * 1000), clause.value)


def _numbers(clause: Clause) -> Any:
    if clause.op not in _COMPARE or clause.op in ("<", "<=", ">", ">="):
        raise Fault(f"Invalid comparator for experiment_id: {clause.op}")
    given = clause.value if isinstance(clause.value, tuple) else (clause.value,)
    try:
        numbers = [int(str(value)) for value in given]
    except ValueError:
        raise Fault(f"Invalid experiment ID '{clause.value}'. Experiment ID must be a valid integer.") from None
    return numbers if isinstance(clause.value, tuple) else numbers[0]


def _compared(column: ColumnElement[Any], op: str, value: Any, kind: str) -> Condition:
    if op == "ILIKE":
        return func.lower(column).like(func.lower(value), escape="\x01")
    if op != "LIKE":
        return _COMPARE[op](column, value)
    if kind != "sqlite":
        return column.like(value, escape="\x01")
    # LIKE of SQLite takes no notice of case; GLOB does, with other signs.
    glob = "".join({"%": "*", "_": "?", "*": "[*]", "?": "[?]", "[": "[[]"}.get(sign, sign) for sign in str(value))
    return column.op("GLOB", is_comparison=True)(glob)


def _ordered(
    statement: Select[Any], order: Order, number: int, kind: str
) -> tuple[Select[Any], list[ColumnElement[Any]]]:
    """Joins what it is ordered by, and the terms: what is not there comes last, either way."""
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
