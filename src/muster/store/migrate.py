"""Upgrades a database's schema to this version in one transaction, or raises an error that says why it can't."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, func, select

from muster.core.errors import ConfigError
from muster.store.connect import Database
from muster.store.tables import REVISION, revision

_LOCK: Final = 0x6D7573746572  # an arbitrary number that no other program should lock


def upgrade(database: Database) -> None:
    """Does nothing when another server was faster."""
    with database.writing() as connection:
        if database.kind == "postgresql":  # SQLite's transaction itself keeps a second server out
            connection.execute(select(func.pg_advisory_xact_lock(_LOCK)))
        _upgrade(connection, database.where)


def _upgrade(connection: Connection, where: str) -> None:
    config = Config()
    folder = Path(__file__).parent / "migrations"
    config.set_main_option("script_location", str(folder).replace("%", "%%"))
    config.attributes["connection"] = connection
    known = {script.revision for script in ScriptDirectory.from_config(config).walk_revisions()}
    current = revision(connection)
    if current is not None and current not in known:
        raise ConfigError(
            f"The database {where} has the schema {current!r}; this version of Muster knows up to {REVISION!r}.",
            "Install the version of Muster that last used it, or a newer one.",
        )
    command.upgrade(config, "head")
