"""Views of runs for search results: facts, and parameters, tags, last metrics and data sets, or chosen columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any, Final, cast

from sqlalchemy import BindParameter, Connection, bindparam, exists, or_, select

from muster.api.compare import MetricFigures
from muster.api.numbers import json_number
from muster.api.runs import Cell, RunCells, RunFacts, RunView
from muster.store.codec import loads
from muster.store.record_tables import links, metric_series, run_params, run_tags, runs
from muster.track.query.nodes import Field
from muster.track.query.sql import METRIC_COLUMNS, Compiler

_CHUNK: Final = 500  # runs in one statement
_SUMMARY: Final = ("last", "min", "max", "step", "time", "points", "nans")
_FACTS: Final = (
    "id", "project", "experiment", "name", "user", "kind", "source", "phase", "created_at", "started_at", "ended_at",
    "parent", "deleted_at", "valid", "problems", "purpose", "attempts", "code_commit", "code_branch", "code_dirty",
    "code_tree",
)  # fmt: skip
_IDS: Final[BindParameter[list[str]]] = bindparam("ids", expanding=True)
_RUNS: Final = select(*(runs.c[name] for name in _FACTS)).where(runs.c.id.in_(_IDS))
_PARAMS: Final = select(run_params.c.run, run_params.c.key, run_params.c.value).where(run_params.c.run.in_(_IDS))
_TAGS: Final = select(run_tags.c.run, run_tags.c.key, run_tags.c.value).where(run_tags.c.run.in_(_IDS))
_DATA: Final = (
    select(links.c.target, links.c.source)
    .where(links.c.target.in_(_IDS), links.c.role == "reads", links.c.source.startswith("data:"))
    .order_by(links.c.source)
)


def views(connection: Connection, ids: Sequence[str]) -> list[RunView]:
    """Runs with their parameters, tags, last values of metrics, and data sets."""
    found: dict[str, RunView] = {}
    for part in _chunks(ids):
        facts = connection.execute(_RUNS, {"ids": part}).all()
        here: dict[str, RunView] = {
            row[0]: {**_facts(row), "params": {}, "tags": {}, "metrics": {}, "data": []} for row in facts
        }
        _add_everything(connection, here, part)
        found |= here
    return [found[one] for one in ids if one in found]


def cells(connection: Connection, compiler: Compiler, ids: Sequence[str], columns: Sequence[Field]) -> list[RunCells]:
    """Runs with the values of these columns."""
    found: dict[str, RunCells] = {}
    for part in _chunks(ids):
        values = _cells(connection, compiler, part, columns)
        facts = connection.execute(_RUNS, {"ids": part}).all()
        found |= {row[0]: {**_facts(row), "cells": values[row[0]]} for row in facts}
    return [found[one] for one in ids if one in found]


def summaries(connection: Connection, ids: Sequence[str]) -> dict[str, dict[str, MetricFigures]]:
    """Run → metric → its last value, extremes and counts."""
    found: dict[str, dict[str, MetricFigures]] = {one: {} for one in ids}
    for part in _chunks(ids):
        for run, name, is_nan, *values in connection.execute(_METRICS, {"ids": part}).all():
            made = {key: _cell(value) for key, value in zip(_SUMMARY, values, strict=True)}
            found[run][name] = cast(MetricFigures, {**made, "last": "NaN" if is_nan else made["last"]})
    return found


def _metrics_statement(parts: Sequence[str]) -> Any:
    """Selects for every name the series of the lowest rank, as conditions do."""
    lower = metric_series.alias()
    own = metric_series.c
    is_lowest = ~exists().where(lower.c.run == own.run, lower.c.name == own.name, lower.c.rank < own.rank)
    columns = [own[METRIC_COLUMNS[part]] for part in parts]
    asked = select(own.run, own.name, own.last_nan, *columns)
    return asked.where(own.run.in_(_IDS), or_(own.rank == 0, is_lowest)).order_by(own.run, own.name)


_METRICS: Final = _metrics_statement(_SUMMARY)
_LAST: Final = _metrics_statement(("last",))


def _facts(row: Sequence[Any]) -> RunFacts:
    view: dict[str, Any] = dict(zip(_FACTS, row, strict=True))
    view["problems"] = loads(view["problems"])
    view["valid"] = bool(view["valid"])
    code = {name: view.pop(f"code_{name}") for name in ("commit", "branch", "dirty", "tree")}
    return cast(RunFacts, {**view, "code": {**code, "dirty": bool(code["dirty"])}})


def _add_everything(connection: Connection, here: dict[str, RunView], ids: Sequence[str]) -> None:
    # Whole lists at once: fetched one by one, several thousand rows take twice the time.
    for run, key, value in connection.execute(_PARAMS, {"ids": ids}).all():
        if run in here:
            here[run]["params"][key] = value
    for run, key, value in connection.execute(_TAGS, {"ids": ids}).all():
        if run in here:
            here[run]["tags"][key] = value
    for run, name, is_nan, last in connection.execute(_LAST, {"ids": ids}).all():
        if run in here:
            here[run]["metrics"][name] = "NaN" if is_nan else json_number(last)
    for target, source in connection.execute(_DATA, {"ids": [f"run:{one}" for one in ids]}).all():
        run = target.removeprefix("run:")
        if run in here:
            here[run]["data"].append(source.removeprefix("data:"))


def _cells(
    connection: Connection, compiler: Compiler, ids: Sequence[str], columns: Sequence[Field]
) -> dict[str, dict[str, Cell]]:
    names = [str(column) for column in columns]
    values = [compiler.value(column).label(f"c{i}") for i, column in enumerate(columns)]
    # A NaN is NULL in its column; only the flag distinguishes it from a missing value.
    nans = [compiler.is_nan(column).label(f"n{i}") for i, column in enumerate(columns)]
    found: dict[str, dict[str, Cell]] = {}
    for run, *cells in connection.execute(select(runs.c.id, *values, *nans).where(runs.c.id.in_(ids))):
        both = zip(names, cells[: len(names)], cells[len(names) :], strict=True)
        found[run] = {name: "NaN" if is_nan else _cell(cell) for name, cell, is_nan in both}
    return found


def _cell(value: Any) -> Any:
    return json_number(value) if isinstance(value, float) else value


def _chunks(ids: Sequence[str]) -> Iterator[list[str]]:
    rest = iter(ids)
    while part := list(islice(rest, _CHUNK)):
        yield part
