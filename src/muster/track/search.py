"""Search over runs: turns a query into pages of run ids, sorted by any field, equally on SQLite and PostgreSQL."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final
from zlib import crc32

from sqlalchemy import ColumnElement, Connection, FromClause, Row, Select, and_, false, func, or_, select

from muster.api.runs import RunCells, RunView
from muster.api.search import FieldList
from muster.core.errors import Invalid
from muster.core.suggest import close_matches
from muster.store.record_tables import metric_series, runs
from muster.track import field_names
from muster.track.query.functions import register
from muster.track.query.nodes import And, Compare, Field, Has, Node, Not, Or, Sort, quoted
from muster.track.query.parse import parse, parse_sort
from muster.track.query.sql import Compiler
from muster.track.record_db import RecordDb
from muster.track.run_views import cells, views

MOST: Final = 10_000  # runs per page
_TIMEOUT: Final = 30.0  # seconds that a query may take
_NEAR: Final = 1000  # runs that are tried before all are
_MOST_HINTS: Final = 5


@dataclass(frozen=True, slots=True)
class Page:
    """`cursor` continues after this page, None if it is the last; `total` only if requested."""

    ids: list[str]
    cursor: str | None = None
    total: int | None = None
    hints: tuple[str, ...] = ()  # for an empty page: names in the query that no run has


@dataclass(frozen=True, slots=True)
class _Key:
    value: ColumnElement[Any]
    down: bool
    always: bool = False  # whether every run has a value: then an index can provide the order


@dataclass(frozen=True, slots=True)
class _PageRequest:
    node: Node
    sorts: tuple[Sort, ...]
    within: list[ColumnElement[bool]]
    limit: int

    @property
    def mark(self) -> int:
        """Hash of the sort keys, so that a cursor is only used with the order it was made for."""
        return crc32(repr(self.sorts).encode())


@dataclass(frozen=True, slots=True)
class _Edge:
    """An index with the runs in the wanted order: `values` reads it from the start of the order."""

    values: Select[Any]
    column: ColumnElement[Any]
    down: bool
    joined: tuple[FromClause, ColumnElement[bool]] | None = None  # the column's table, and its join condition with runs
    spoiled: Select[Any] | None = None  # finds a row if the index lacks some runs

    @classmethod
    def of(cls, request: _PageRequest) -> _Edge | None:
        if not request.sorts:
            created = runs.c.created_at
            return cls(select(created).order_by(created.desc()), created, True)
        field, down = request.sorts[0].field, request.sorts[0].down
        if len(request.sorts) > 1 or field.kind != "metric" or field.part != "last":
            return None
        table = metric_series.alias()  # an alias, since conditions use the table too
        series = table.c
        here = and_(series.name == field.name, series.rank == 0, series.last.is_not(None))
        ordered = select(series.last).where(here).order_by(series.last.desc() if down else series.last)
        others = select(series.run).where(series.name == field.name, series.rank > 0).limit(1)
        return cls(ordered, series.last, down, (table, and_(series.run == runs.c.id, here)), others)


class Search:
    def __init__(self, db: RecordDb) -> None:
        self._db = db

    def find(
        self,
        query: str | Node = "",
        *,
        projects: Sequence[str] | None,
        sort: str | Sequence[Sort] = (),
        limit: int = 100,
        after: str | None = None,
        hidden: bool | None = False,
        experiments: Sequence[int] | None = None,
        count: bool = False,
    ) -> Page:
        """Runs of these projects (None: all) that match the query; without `sort`, newest first.

        `hidden`: False leaves hidden runs out, True selects only them, None takes both. `after` is a page's cursor.
        Runs without a value in the sort field come last. Raises QueryError, and Invalid for a wrong cursor.
        """
        now = self._db.now()
        request = _PageRequest(
            parse(query, now) if isinstance(query, str) else query,
            parse_sort(sort) if isinstance(sort, str) else tuple(sort),
            _within(projects, hidden, experiments),
            max(1, min(limit, MOST)),
        )
        with self._db.reading(_TIMEOUT) as connection:
            patterns = register(connection)
            rows = self._near(connection, request) if after is None else None
            if rows is None:
                rows = self._far(connection, request, after)
            total = self._count(connection, request) if count else None
        if patterns.spent:
            raise Invalid("A pattern of the query takes too long.", "Make it simpler, or narrow the query otherwise.")
        ids = [row[0] for row in rows[: request.limit]]
        cursor = _cursor(request.mark, rows[request.limit - 1][1:]) if len(rows) > request.limit else None
        return Page(ids, cursor, total, () if ids or after else self._hints(request.node, projects))

    def views(self, ids: Sequence[str]) -> list[RunView]:
        """The runs in the given order. An id without a run is left out."""
        with self._db.reading(_TIMEOUT) as connection:
            register(connection)
            return views(connection, ids)

    def cells(self, ids: Sequence[str], columns: Sequence[Field]) -> list[RunCells]:
        """The runs in the given order, each with the values of these columns. An id without a run is left out."""
        with self._db.reading(_TIMEOUT) as connection:
            register(connection)
            return cells(connection, self._compiler(), ids, columns)

    def fields(self, text: str, *, projects: Sequence[str] | None, limit: int) -> FieldList:
        """Fields that a query can name, by a part of their name; of names that runs have, those of visible runs."""
        with self._db.reading(_TIMEOUT) as connection:
            return field_names.fields(connection, text, _within(projects, False, None), limit)

    def _near(self, connection: Connection, request: _PageRequest) -> Sequence[Row[Any]] | None:
        """A page from only the first runs in the order; None if they don't fill it.

        Most queries match many runs: then checking the first thousand is enough, however many there are.
        """
        edge = _Edge.of(request)
        if edge is None or request.limit > _NEAR // 4:
            return None
        reach = connection.execute(edge.values.offset(_NEAR).limit(1)).scalar()
        spoiled = edge.spoiled is not None and connection.execute(edge.spoiled).first() is not None
        if reach is None or spoiled:
            return None
        compiler = self._compiler(few=True)
        keys = _keys(compiler, request.sorts)
        # Strictly before the edge: runs that share its value may be on both sides of it.
        inside = edge.column > reach if edge.down else edge.column < reach
        statement = _selected(compiler, request, keys).where(inside)
        if edge.joined is not None:
            statement = statement.join(*edge.joined)
        rows = connection.execute(statement.order_by(*_order(keys)).limit(request.limit + 1)).all()
        return rows if len(rows) > request.limit else None

    def _far(self, connection: Connection, request: _PageRequest, after: str | None) -> Sequence[Row[Any]]:
        compiler = self._compiler()
        keys = _keys(compiler, request.sorts)
        statement = _selected(compiler, request, keys)
        if after is not None:
            found = statement.subquery()
            keys = [_Key(found.c[f"k{i}"], key.down, key.always) for i, key in enumerate(keys)]
            statement = select(found).where(_beyond(keys, _read_cursor(after, request.mark, len(keys))))
        return connection.execute(statement.order_by(*_order(keys)).limit(request.limit + 1)).all()

    def _count(self, connection: Connection, request: _PageRequest) -> int:
        where = and_(self._compiler().condition(request.node), *request.within)
        return connection.execute(select(func.count()).select_from(runs).where(where)).scalar_one()

    def _compiler(self, few: bool = False) -> Compiler:
        return Compiler(self._db.database.kind, self._db.now(), few)

    def _hints(self, node: Node, projects: Sequence[str] | None) -> tuple[str, ...]:
        """Names in the query that no run has, each with the most similar existing one."""
        found: list[str] = []
        for field in dict.fromkeys(_fields(node)):
            if field.kind in field_names.NAMES and len(found) < _MOST_HINTS:
                with self._db.reading(_TIMEOUT) as connection:
                    near = _nearest(connection, field_names.NAMES[field.kind], field.name, projects)
                if near != field.name:
                    kind = {"param": "parameter"}.get(field.kind, field.kind)
                    meant = f"; did you mean `{field.kind}s.{quoted(near)}`?" if near else "."
                    found.append(f"No run has a {kind} {field.name!r}{meant}")
        return tuple(found)


def _nearest(
    connection: Connection, column: ColumnElement[str], name: str, projects: Sequence[str] | None
) -> str | None:
    """The name itself if a visible run has it, else a similar name, else None."""
    within = _within(projects, False, None)
    if field_names.is_known(connection, column, name, within):
        return name
    some = field_names.names_from(connection, column, "", field_names.END, field_names.SCANNED)
    near = close_matches(name, some, 5, 0.5)
    return next((one for one in near if field_names.is_known(connection, column, one, within)), None)


def _within(
    projects: Sequence[str] | None, hidden: bool | None, experiments: Sequence[int] | None
) -> list[ColumnElement[bool]]:
    found: list[ColumnElement[bool]] = []
    if projects is not None:
        found.append(runs.c.project.in_(list(projects)))
    if hidden is not None:
        found.append(runs.c.deleted_at.is_not(None) if hidden else runs.c.deleted_at.is_(None))
    if experiments is not None:
        found.append(runs.c.experiment.in_(list(experiments)))
    return found


def _selected(compiler: Compiler, request: _PageRequest, keys: Sequence[_Key]) -> Select[Any]:
    columns = [runs.c.id, *(key.value.label(f"k{i}") for i, key in enumerate(keys))]
    return select(*columns).where(compiler.condition(request.node), *request.within)


def _order(keys: Sequence[_Key]) -> list[ColumnElement[Any]]:
    ordered = [(key, key.value.desc() if key.down else key.value.asc()) for key in keys]
    return [order if key.always else order.nulls_last() for key, order in ordered]


def _keys(compiler: Compiler, wanted: Sequence[Sort]) -> list[_Key]:
    """The sort keys of pages, ending with a unique one."""
    keys: list[_Key] = []
    for sort in wanted:
        if sort.field.kind in ("param", "tag"):
            # Numbers are sorted as numbers; other values follow.
            keys.append(_Key(compiler.number(sort.field), sort.down))
        value = compiler.value(sort.field)
        textual = sort.field.kind not in ("metric", "number", "duration", "time", "flag")
        keys.append(_Key(compiler.words.collated(value) if textual else value, sort.down))
    return [*keys, _Key(runs.c.created_at, True, True), _Key(compiler.words.collated(runs.c.id), True, True)]


def _beyond(keys: Sequence[_Key], marks: Sequence[Any]) -> ColumnElement[bool]:
    """Rows after the row with these values; NULL sorts last."""
    found: list[ColumnElement[bool]] = []
    same: list[ColumnElement[bool]] = []
    for key, mark in zip(keys, marks, strict=True):
        if mark is not None:
            further = key.value < mark if key.down else key.value > mark
            found.append(and_(*same, or_(further, key.value.is_(None))))
        same.append(key.value.is_(None) if mark is None else key.value == mark)
    return or_(false(), *found)


def _cursor(mark: int, values: Sequence[Any]) -> str:
    return base64.urlsafe_b64encode(json.dumps([mark, *values]).encode()).decode()


def _read_cursor(text: str, mark: int, length: int) -> list[Any]:
    try:
        found = json.loads(base64.urlsafe_b64decode(text.encode()))
        good = isinstance(found, list) and found[0] == mark and len(found) == length + 1
    except (ValueError, IndexError, RecursionError):
        good = False
    if not good or any(not isinstance(one, str | int | float | None) for one in found):
        raise Invalid("The cursor is not one of this question.", "Ask for the first page again, with the same sort.")
    return list(found[1:])


def _fields(node: Node) -> list[Field]:
    if isinstance(node, And | Or):
        return [field for one in node.nodes for field in _fields(one)]
    if isinstance(node, Not):
        return _fields(node.node)
    assert isinstance(node, Compare | Has)
    return [node.field]
