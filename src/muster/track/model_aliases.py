"""Aliases of model versions: names that can be moved from one version to another."""

from __future__ import annotations

import re
from typing import Final

from sqlalchemy import delete, select

from muster.core.errors import Invalid
from muster.core.event import SYSTEM
from muster.core.record_events import AliasRemoved, AliasSet
from muster.store import record_tables as tables
from muster.store.insert import put
from muster.track.model_rows import LOCK, Model, Version
from muster.track.record_db import RecordDb
from muster.track.values import void

_ALIAS: Final = re.compile(r"[A-Za-z0-9_\-.]{1,255}\Z")
_VERSION_LIKE: Final = re.compile(r"v?\d+\Z", re.IGNORECASE)


class Aliases:
    """The methods of `Models` for aliases."""

    _db: RecordDb

    def need(self, name: str) -> Model:
        raise NotImplementedError

    def need_version(self, name: str, version: int) -> Version:
        raise NotImplementedError

    def set_alias(self, name: str, alias: str, version: int, actor: str = SYSTEM) -> None:
        """Sets the alias; it is removed from the version that had it."""
        if not _ALIAS.match(alias) or _VERSION_LIKE.match(alias) or alias == "latest":
            raise Invalid(
                f"{alias[:60]!r} can't be an alias.",
                "Use letters, digits, `_`, `-` and `.`; not `latest`, nor a number.",
            )
        with self._db.holding(LOCK):
            self.need_version(name, version)
            row = {"name": name, "alias": alias, "version": version}
            told = self._db.event(AliasSet(name, alias, version), actor, self.need(name).project)
            self._db.write(lambda connection: put(connection, tables.model_aliases, [row]), events=[told])

    def delete_alias(self, name: str, alias: str, actor: str = SYSTEM) -> None:
        """Deletes the alias, if it exists."""
        table = tables.model_aliases
        gone = delete(table).where(table.c.name == name, table.c.alias == alias)
        told = self._db.event(AliasRemoved(name, alias), actor, self.need(name).project)
        with self._db.holding(LOCK):
            if alias in self.aliases(name):
                self._db.write(lambda connection: void(connection.execute(gone)), events=[told])

    def aliases(self, name: str) -> dict[str, int]:
        table = tables.model_aliases.c
        with self._db.reading() as connection:
            rows = connection.execute(
                select(table.alias, table.version).where(table.name == name).order_by(table.alias)
            )
            return {row.alias: row.version for row in rows}
