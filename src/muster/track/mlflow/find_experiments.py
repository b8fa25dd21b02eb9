"""MLflow's search over experiments, and page tokens."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Sequence
from typing import Any

from sqlalchemy import Select, func, select

from muster.store.record_tables import experiments
from muster.track.mlflow.faults import Fault
from muster.track.mlflow.filters import Clause, Order
from muster.track.mlflow.find import COMPARE, Condition, compared
from muster.track.query.functions import Dialect


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
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
        raise Fault(f"Invalid page token, decoded value={decoded!r}") from None


def _experiment_condition(clause: Clause, kind: str) -> Condition:
    table = experiments.c
    if clause.kind == "tag":
        found = Dialect(kind).json(table.tags, clause.key)
        if clause.op in ("IS NULL", "IS NOT NULL"):
            return found.is_(None) if clause.op == "IS NULL" else found.is_not(None)
        return compared(found, clause.op, clause.value, kind)
    if clause.key == "experiment_id":
        return COMPARE[clause.op](table.id, _numbers(clause))
    if clause.key == "name":
        return compared(table.name, clause.op, clause.value, kind)
    column = table.created_at if clause.key == "creation_time" else table.updated_at
    if isinstance(clause.value, float):
        raise Fault(f"Invalid value for numeric attribute '{clause.key}': '{clause.value}'")
    return COMPARE[clause.op](func.round(column * 1000), clause.value)


def _numbers(clause: Clause) -> Any:
    if clause.op not in COMPARE or clause.op in ("<", "<=", ">", ">="):
        raise Fault(f"Invalid comparator for experiment_id: {clause.op}")
    given = clause.value if isinstance(clause.value, tuple) else (clause.value,)
    try:
        numbers = [int(str(value)) for value in given]
    except ValueError:
        raise Fault(f"Invalid experiment ID '{clause.value}'. Experiment ID must be a valid integer.") from None
    return numbers if isinstance(clause.value, tuple) else numbers[0]
