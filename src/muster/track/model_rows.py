"""Rows of models and model versions."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from sqlalchemy import Connection, delete, select, update

from muster.store import record_tables as tables
from muster.store.base import Record
from muster.store.codec import dumps, loads
from muster.store.insert import Row
from muster.track.provenance.rows import add_due, gone
from muster.track.rows import Doc

LOCK: Final = "models"  # one lock for the registry, which changes rarely; keeps names and version numbers unique
_OURS: Final = re.compile(r"(checkpoint|artifact|run):[^\s/][^\s]*\Z")
_MLFLOW: Final = re.compile(r"runs:/+([^/]+)/(.+)\Z")


@dataclass(frozen=True, slots=True)
class Model:
    name: str
    project: str
    created_at: float
    updated_at: float
    description: str
    doc: Doc = field(default_factory=dict)  # tags

    @property
    def tags(self) -> dict[str, str]:
        return dict(self.doc.get("tags") or {})


@dataclass(frozen=True, slots=True)
class Version:
    name: str
    version: int
    run: str  # empty if no run made it
    source: str
    stage: str
    user: str
    created_at: float
    updated_at: float
    description: str
    doc: Doc = field(default_factory=dict)  # tags, status

    @property
    def tags(self) -> dict[str, str]:
        return dict(self.doc.get("tags") or {})

    @property
    def status(self) -> str:
        return str(self.doc.get("status") or "READY")

    @property
    def ref(self) -> str:
        return f"model:{self.name}/{self.version}"


def find_models(connection: Connection, *where: Any) -> list[Model]:
    table = tables.models
    rows = connection.execute(select(table).where(*where).order_by(table.c.name)).all()
    return [Model(*_loaded(row)) for row in rows]


def find_versions(connection: Connection, *where: Any) -> list[Version]:
    table = tables.model_versions
    rows = connection.execute(select(table).where(*where).order_by(table.c.name, table.c.version)).all()
    return [Version(*_loaded(row)) for row in rows]


def model_row(model: Model) -> Row:
    return _row(model, [column.name for column in tables.models.columns])


def version_row(version: Version) -> Row:
    return _row(version, [column.name for column in tables.model_versions.columns])


def put_model(name: str, **columns: Any) -> Record:
    table = tables.models

    def record(connection: Connection) -> None:
        connection.execute(update(table).where(table.c.name == name).values(columns))

    return record


def put_version(name: str, version: int, **columns: Any) -> Record:
    table = tables.model_versions

    def record(connection: Connection) -> None:
        connection.execute(update(table).where(table.c.name == name, table.c.version == version).values(columns))

    return record


def link_of(version: Version) -> str | None:
    """The lineage reference of what the version was made from."""
    return source_ref(version.source) or (f"run:{version.run}" if version.run else None)


def source_ref(source: str) -> str | None:
    """The lineage reference that a source names; None for a location elsewhere."""
    if _OURS.match(source):
        return source
    found = _MLFLOW.match(source)
    return f"artifact:{found[1]}/{found[2]}" if found else None


def version_gone(name: str, version: int) -> Record:
    """Deletes a version with its aliases, promotions and links. What it was made from stays."""
    versions, aliases, promotions = tables.model_versions, tables.model_aliases, tables.promotions

    def record(connection: Connection) -> None:
        for table in (versions, aliases, promotions):
            connection.execute(delete(table).where(table.c.name == name, table.c.version == version))
        links, ref = tables.links, f"model:{name}/{version}"
        connection.execute(delete(links).where((links.c.target == ref) | (links.c.source == ref)))
        gone(connection, ref)

    return record


def renamed(old: str, new: str, versions: Mapping[int, str], now: float) -> Record:
    """`versions`: each with its run. A statement has the name in it, so that a new one is due."""

    def record(connection: Connection) -> None:
        models = tables.models
        connection.execute(update(models).where(models.c.name == old).values(name=new, updated_at=now))
        for table in (tables.model_versions, tables.model_aliases, tables.promotions):
            connection.execute(update(table).where(table.c.name == old).values(name=new))
        links = tables.links
        for version, run in versions.items():
            was, now_ref = f"model:{old}/{version}", f"model:{new}/{version}"
            connection.execute(update(links).where(links.c.target == was).values(target=now_ref))
            connection.execute(update(links).where(links.c.source == was).values(source=now_ref))
            gone(connection, was)
            add_due(connection, now_ref, run, now)

    return record


def _loaded(row: Sequence[Any]) -> list[Any]:
    return [*row[:-1], loads(row[-1])]


def _row(one: Model | Version, names: Sequence[str]) -> Row:
    return {name: dumps(one.doc) if name == "doc" else getattr(one, name) for name in names}
