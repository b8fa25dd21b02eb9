"""Inserts into the tables of the record, many rows per statement, for both databases."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any, Final

from sqlalchemy import Connection, Dialect, Table
from sqlalchemy.dialects import postgresql, sqlite

Row = dict[str, Any]
Statement = tuple[str, list[str]]  # SQL, and its columns in binding order


def add(connection: Connection, table: Table, rows: Sequence[Row]) -> None:
    """Inserts rows with the same columns; existing rows are not changed."""
    if rows:
        _run(connection, _statement(connection.dialect, table, tuple(rows[0]), None), rows)


def put(connection: Connection, table: Table, rows: Sequence[Row], only: Iterable[str] = ()) -> None:
    """Inserts rows; in existing rows the columns `only`, or all given columns, are replaced."""
    if rows:
        _run(connection, _statement(connection.dialect, table, tuple(rows[0]), tuple(only)), rows)


def add_up(connection: Connection, table: Table, rows: Sequence[Row], sums: Iterable[str]) -> None:
    """Inserts rows; in existing rows the columns `sums` are added to, and the others are replaced.

    At most one row of a key.
    """
    if rows:
        _run(connection, _statement(connection.dialect, table, tuple(rows[0]), (), tuple(sums)), rows)


def add_all(connection: Connection, rows: Iterable[tuple[Table, Row]]) -> None:
    """`add` for rows of several tables; rows of one table have the same columns."""
    by_table: defaultdict[Table, list[Row]] = defaultdict(list)
    for table, row in rows:
        by_table[table].append(row)
    for table, some in by_table.items():
        add(connection, table, some)


def _run(connection: Connection, statement: Statement, rows: Sequence[Row]) -> None:
    """Rows go to the driver as tuples: SQLAlchemy would take longer for each than the database does."""
    sql, order = statement
    connection.exec_driver_sql(sql, [tuple(row[name] for name in order) for row in rows])


def _statement(
    dialect: Dialect, table: Table, names: tuple[str, ...], only: tuple[str, ...] | None, sums: tuple[str, ...] = ()
) -> Statement:
    """The SQL and its column order, compiled once; with `only` None existing rows are not changed."""
    key = (dialect.name, table.name, names, only, sums)
    if key not in _STATEMENTS:
        make: Any = sqlite.insert if dialect.name == "sqlite" else postgresql.insert
        statement = make(table)
        if only is None:
            statement = statement.on_conflict_do_nothing()
        else:
            keys = [column.name for column in table.primary_key]
            replaced = only or tuple(name for name in names if name not in keys)
            values = {name: statement.excluded[name] for name in replaced}
            values |= {name: table.c[name] + statement.excluded[name] for name in sums}
            statement = statement.on_conflict_do_update(index_elements=keys, set_=values)
        compiled = statement.compile(dialect=dialect, column_keys=list(names))
        order = list(compiled.positiontup or ())
        assert sorted(order) == sorted(names), "every column of a row is bound once"
        _STATEMENTS[key] = (str(compiled), order)
    return _STATEMENTS[key]


_STATEMENTS: Final[dict[Any, Statement]] = {}
