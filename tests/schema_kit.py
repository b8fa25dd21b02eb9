"""Tables of new SQLite databases in tests: the migrations run once in a process, and others get what they made.

To run them takes longer than most tests. Tests of the store run them each time, as does a server that is started as a
process of its own.
"""

from __future__ import annotations

import tempfile
from functools import cache
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, make_url

from muster.store import migrate
from muster.store.connect import Database, connect
from muster.store.refold import refold

real_upgrade = migrate.upgrade


def install() -> None:
    migrate.upgrade = upgrade


def upgrade(database: Database) -> None:
    """Like `migrate.upgrade`, in one transaction as well."""
    if database.kind == "sqlite":
        statements = made()
        with database.writing() as connection:
            if not _schema(connection):
                driver: Any = connection.connection.driver_connection  # the same transaction, three times as fast
                for statement, rows in statements:
                    driver.executemany(statement, rows) if rows else driver.execute(statement)
                return
    real_upgrade(database)


@cache
def made() -> list[tuple[str, list[tuple[Any, ...]]]]:
    """Statements that make the tables, and what the migrations and the first fold of the empty log write into them."""
    with tempfile.TemporaryDirectory() as folder:
        database = connect(make_url(f"sqlite:///{Path(folder, 'made.db')}"))
        try:
            real_upgrade(database)
            refold(database)
            with database.reading() as connection:
                schema = _schema(connection)
                found: list[tuple[str, list[tuple[Any, ...]]]] = [(statement, []) for _, _, statement in schema]
                for name in (name for kind, name, _ in schema if kind == "table"):
                    rows = [tuple(row) for row in connection.exec_driver_sql(f'SELECT * FROM "{name}"')]
                    if rows:
                        places = ", ".join("?" * len(rows[0]))
                        found.append((f'INSERT INTO "{name}" VALUES ({places})', rows))
                return found
        finally:
            database.close()


def _schema(connection: Connection) -> list[tuple[str, str, str]]:
    asked = "SELECT type, name, sql FROM sqlite_master WHERE sql IS NOT NULL AND name NOT LIKE 'sqlite%' ORDER BY rowid"
    return [(kind, name, statement) for kind, name, statement in connection.exec_driver_sql(asked)]
