"""Translates a query's tree to SQL over the record. Values are always bound parameters.

A condition is true or false and never NULL, so that `not` is the complement. `!=` and the other negative operators
require the field to exist: `tags.a != x` finds runs with another `a`, `not tags.a = x` also those without.
"""

from __future__ import annotations

import math
import operator as signs
from collections.abc import Callable
from typing import Any, Final

from sqlalchemy import ColumnElement, Select, Table, and_, exists, false, func, or_, select, true

from muster.store.record_tables import experiments, links, metric_series, notes, run_params, run_tags, runs
from muster.track.query.functions import Dialect, escaped
from muster.track.query.nodes import And, Compare, Field, Has, Node, Not, Operand, Operator, Or, Span

SHAPES: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "=": signs.eq, "!=": signs.ne, "<": signs.lt, "<=": signs.le, ">": signs.gt, ">=": signs.ge,
}  # fmt: skip
METRIC_COLUMNS: Final = {
    "last": "last", "min": "low", "max": "high", "step": "last_step", "time": "last_time", "points": "points",
    "nans": "nans",
}  # fmt: skip
_NEGATIVE: Final[dict[str, Operator]] = {
    "!=": "=", "!~": "~", "not in": "in", "not like": "like", "not ilike": "ilike",
}  # fmt: skip
_RUN: Final = "run:"
_DATA: Final = "data:"

Condition = ColumnElement[bool]


class Compiler:
    """Compiles for one kind of database, at one time.

    `few`: the conditions are evaluated for few runs, so each looks up its table by run. Otherwise the database may also
    start with the runs that a condition finds by its index.
    """

    def __init__(self, kind: str, now: float, few: bool = False) -> None:
        self.words, self.now, self._few = Dialect(kind), now, few

    def condition(self, node: Node) -> Condition:
        if isinstance(node, And):
            return and_(true(), *(self.condition(one) for one in node.nodes))
        if isinstance(node, Or):
            return or_(false(), *(self.condition(one) for one in node.nodes))
        if isinstance(node, Not):
            return ~self.condition(node.node)
        if isinstance(node, Has):
            return self._has(node.field)
        return self._compare(node)

    def value(self, field: Field) -> ColumnElement[Any]:
        """The run's value of the field, for sorting or display; NULL if there is none."""
        if field.kind == "metric":
            return _of_series(metric_series.c[METRIC_COLUMNS[field.part]], field.name)
        if field.kind in ("param", "tag"):
            table = run_params if field.kind == "param" else run_tags
            return _value_of(table, field.name, "value")
        if field.kind == "data":
            names = self.words.joined(func.substr(links.c.source, len(_DATA) + 1))
            read = (links.c.target == _RUN + runs.c.id, links.c.source.startswith(_DATA), links.c.role == "reads")
            return select(names).where(*read).scalar_subquery()
        if field.kind == "experiment":
            named = select(experiments.c.name).where(experiments.c.id == runs.c.experiment)
            return named.scalar_subquery()
        return self._own(field)

    def is_nan(self, field: Field) -> ColumnElement[Any]:
        """Whether a run's last value of a metric is NaN; false for every other field."""
        if field.kind != "metric" or field.part != "last":
            return false()
        return _of_series(metric_series.c.last_nan, field.name)

    def number(self, field: Field) -> ColumnElement[Any]:
        """The numeric value of a parameter or tag."""
        if field.kind == "param":
            return _value_of(run_params, field.name, "number")
        return self.words.number(_value_of(run_tags, field.name, "value"))

    # --- conditions -------------------------------------------------------------------------------------------------

    def _has(self, field: Field) -> Condition:
        if field.kind in ("param", "tag"):
            return self._among(_keyed(field))
        if field.kind == "metric":
            return self._among(select(metric_series.c.run).where(metric_series.c.name == field.name))
        if field.kind == "data":
            return self._data(true())
        if field.kind == "note":
            return self._among(select(notes.c.run).where(notes.c.run != ""))
        value = self._own(field)
        plain = field.kind in ("column", "commit", "env", "version", "phase")
        return and_(value.is_not(None), value != "") if plain else value.is_not(None)

    def _compare(self, comparison: Compare) -> Condition:
        positive = _NEGATIVE.get(comparison.operator)
        if comparison.field.kind == "metric":
            return self._metric(comparison)
        if comparison.field.kind in ("param", "tag"):
            return self._among(_keyed(comparison.field).where(self._loose(comparison)))
        if positive is not None:
            same = self._compare(Compare(comparison.field, positive, comparison.operands))
            return and_(self._has(comparison.field), ~same)
        if comparison.field.kind == "data":
            return or_(
                false(), *(self._data(self._data_is(comparison.operator, str(one))) for one in comparison.operands)
            )
        if comparison.field.kind == "note":
            texts = [self._note(comparison.operator, str(one)) for one in comparison.operands]
            return self._among(select(notes.c.run).where(notes.c.run != "", or_(false(), *texts)))
        value = self._own(comparison.field)
        return and_(
            value.is_not(None), or_(false(), *(self._one(comparison, value, one) for one in comparison.operands))
        )

    def _one(self, comparison: Compare, value: ColumnElement[Any], operand: Operand) -> Condition:
        """Compares one operand with a column of the run itself."""
        sign: Operator = "=" if comparison.operator == "in" else comparison.operator
        if isinstance(operand, Span):
            return _in_time(value, sign, operand)
        if sign in ("~", "like", "ilike"):
            return self._text(value, sign, str(operand))
        if comparison.field.kind == "commit":
            return value.ilike(f"{escaped(str(operand))}%", escape="\\")
        if comparison.field.kind == "version":
            return self._version(value, sign, str(operand))
        if comparison.field.kind == "experiment":
            return self._experiment(str(operand))
        found: Condition = SHAPES[sign](self.words.collated(value) if isinstance(operand, str) else value, operand)
        return found

    def _text(self, value: ColumnElement[Any], sign: str, text: str) -> Condition:
        return self.words.matches(value, text) if sign == "~" else self.words.like(value, text, sign == "ilike")

    def _metric(self, comparison: Compare) -> Condition:
        """Uses the run's series of the lowest rank for this name: almost always rank 0, which has an index."""
        series = metric_series
        lower = series.alias()
        is_lowest = ~exists().where(
            lower.c.run == series.c.run, lower.c.name == series.c.name, lower.c.rank < series.c.rank
        )
        column = series.c[METRIC_COLUMNS[comparison.field.part]]
        test = _number_test(column, comparison, series.c.last_nan if comparison.field.part == "last" else None)
        ranked = select(series.c.run).where(series.c.name == comparison.field.name, test)
        first = self._among(ranked.where(series.c.rank == 0))
        return or_(first, self._among(ranked.where(series.c.rank > 0, is_lowest)))

    def _loose(self, comparison: Compare) -> Condition:
        """Compares with a parameter or tag: as numbers if both are numbers, else as texts."""
        table = run_params if comparison.field.kind == "param" else run_tags
        value = table.c.value
        number = run_params.c.number if comparison.field.kind == "param" else self.words.number(value)
        positive = _NEGATIVE.get(comparison.operator, comparison.operator)
        sign: Operator = "=" if positive == "in" else positive
        tests: list[Condition] = []
        for operand in comparison.operands:
            if sign in ("~", "like", "ilike"):
                tests.append(self._text(value, sign, str(operand)))
            elif isinstance(operand, bool):
                tests.append(func.lower(value) == str(operand).lower())
            elif isinstance(operand, float):
                tests.append(and_(number.is_not(None), SHAPES[sign](number, operand)))
            else:
                tests.append(SHAPES[sign](self.words.collated(value), operand))
        found = or_(false(), *tests)
        return ~found if comparison.operator in _NEGATIVE else found

    def _data(self, test: Condition) -> Condition:
        reads = and_(links.c.role == "reads", links.c.source.startswith(_DATA), test)
        if self._few:
            return exists().where(links.c.target == _RUN + runs.c.id, reads)
        of_runs = select(func.substr(links.c.target, len(_RUN) + 1)).where(links.c.target.startswith(_RUN), reads)
        return runs.c.id.in_(of_runs)

    def _data_is(self, sign: str, text: str) -> Condition:
        if sign in ("~", "like", "ilike"):
            return self._text(func.substr(links.c.source, len(_DATA) + 1), sign, text)
        exact = links.c.source == _DATA + text
        # A name without a version means any version. A range, since SQLite's LIKE ignores case.
        source = self.words.collated(links.c.source)
        versions = and_(source > f"{_DATA}{text}@", source < f"{_DATA}{text}A")
        return exact if "@" in text else or_(exact, versions)

    def _note(self, sign: str, text: str) -> Condition:
        if sign in ("like", "ilike"):
            return self.words.like(notes.c.text, text, sign == "ilike")
        return self.words.matches(notes.c.text, text) if sign == "~" else self.words.contains(notes.c.text, text)

    def _version(self, value: ColumnElement[Any], sign: str, text: str) -> Condition:
        """3.11 matches any 3.11.x, and 2.6 sorts before 2.13."""
        if sign == "=":
            parts = [value.ilike(f"{escaped(text)}{after}%", escape="\\") for after in (".", "+", "-")]
            return or_(value == text, *parts)
        found = self.words.release(value)
        ordered: Condition = SHAPES[sign](found, self.words.release_of(text))
        return and_(found.is_not(None), ordered)

    def _experiment(self, text: str) -> Condition:
        by_name = runs.c.experiment.in_(select(experiments.c.id).where(experiments.c.name == text))
        return or_(runs.c.experiment == int(text), by_name) if text.isascii() and text.isdigit() else by_name

    def _among(self, found: Select[Any]) -> Condition:
        """The run is in the result; its first column is the run's id."""
        if self._few:
            return found.where(found.selected_columns[0] == runs.c.id).exists()
        return runs.c.id.in_(found)

    def _own(self, field: Field) -> ColumnElement[Any]:
        """A column of the run itself, or an expression of some."""
        if field.kind == "duration":
            return func.coalesce(runs.c.ended_at, self.now) - runs.c.started_at
        if field.kind == "experiment":
            return runs.c.experiment
        if field.kind in ("env", "version"):
            path = {"python": ("python", "version"), "host": ("host", "name")}.get(field.name)
            kind, _, name = field.name.partition(".")
            return self.words.json(runs.c.doc, "environment", *(path or ((kind, name) if name else (kind,))))
        return runs.c[field.name]


def _keyed(field: Field) -> Select[Any]:
    table = run_params if field.kind == "param" else run_tags
    return select(table.c.run).where(table.c.key == field.name)


def _of_series(column: ColumnElement[Any], name: str) -> ColumnElement[Any]:
    """The value in the series of the lowest rank."""
    series = metric_series.c
    found = select(column).where(series.run == runs.c.id, series.name == name)
    return found.order_by(series.rank).limit(1).scalar_subquery()


def _value_of(table: Table, key: str, column: str) -> ColumnElement[Any]:
    return select(table.c[column]).where(table.c.run == runs.c.id, table.c.key == key).scalar_subquery()


def _number_test(column: ColumnElement[Any], comparison: Compare, nan: ColumnElement[bool] | None) -> Condition:
    """A NaN is stored as NULL with `nan` set: it equals only `nan`, and is neither above nor below any number."""
    positive = _NEGATIVE.get(comparison.operator, comparison.operator)
    sign = "=" if positive == "in" else positive
    tests: list[Condition] = []
    for operand in comparison.operands:
        if isinstance(operand, float) and math.isnan(operand):
            tests.append(nan if nan is not None and sign == "=" else false())
        else:
            tests.append(and_(column.is_not(None), SHAPES[sign](column, operand)))
    found = or_(false(), *tests)
    return ~found if comparison.operator in _NEGATIVE else found


def _in_time(value: ColumnElement[Any], sign: str, span: Span) -> Condition:
    """Compares with a day or minute: `>` means after its end, `<` before its start."""
    if span.start == span.end:
        found: Condition = SHAPES[sign](value, span.start)
        return found
    return {
        "=": and_(value >= span.start, value < span.end),
        "<": value < span.start,
        "<=": value < span.end,
        ">": value >= span.end,
        ">=": value >= span.start,
    }[sign]
