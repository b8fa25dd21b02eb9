"""The model registry: models, their versions, aliases, and stages with the evidence for each promotion."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from sqlalchemy import Connection, delete, func, select

from muster.api.words import STAGES
from muster.core.errors import Conflict, Invalid, NotFound
from muster.core.event import SYSTEM
from muster.core.record_events import (
    ModelChanged,
    ModelCreated,
    ModelDeleted,
    VersionChanged,
    VersionCreated,
    VersionDeleted,
)
from muster.store import record_tables as tables
from muster.store.codec import check_text, dumps
from muster.store.insert import add
from muster.track.facts import checked
from muster.track.model_aliases import Aliases
from muster.track.model_rows import (
    LOCK,
    Model,
    Version,
    find_models,
    find_versions,
    link_of,
    model_row,
    put_model,
    put_version,
    renamed,
    version_gone,
    version_row,
)
from muster.track.promotions import Promotion, Promotions
from muster.track.provenance.rows import add_due
from muster.track.record_db import RecordDb
from muster.track.rows import Doc, link_row

NAME_MAX: Final = 250
TEXT_MAX: Final = 100_000  # characters in a description

NeedClean = Callable[[str, str, str], None]  # source, run, what can't be done with it


def no_need(source: str, run: str, what: str) -> None:
    """Nothing is scanned."""


__all__ = ["Model", "Models", "Promotion", "Version"]


class Models(Aliases):
    """`promotions` handles the stages, this class everything else."""

    def __init__(self, db: RecordDb, promotions: Promotions, need_clean: NeedClean = no_need) -> None:
        """`need_clean` raises Refused if what a version is made from is quarantined."""
        self._db, self.promotions, self._need_clean = db, promotions, need_clean

    def promote(self, name: str, version: int, stage: str, **given: Any) -> Promotion:
        """As `Promotions.promote`. Raises Refused if what the version was made from is quarantined."""
        if stage in ("staging", "production"):
            found = self.need_version(name, version)
            self._need_clean(found.source, found.run, "can't be promoted")
        return self.promotions.promote(name, version, stage, **given)

    # --- models -----------------------------------------------------------------------------------------------------

    def create(
        self,
        name: str,
        project: str,
        *,
        description: str = "",
        tags: Mapping[str, str] | None = None,
        actor: str = SYSTEM,
    ) -> Model:
        """Raises Conflict if any project has a model with this name."""
        _check_name(name)
        _check_text(project, description)
        kept = checked("tag", tags or {})
        with self._db.holding(LOCK):
            if self.get(name) is not None:
                raise taken(name)
            now = self._db.now()
            made = Model(name, project, now, now, description, {"tags": kept})
            told = self._db.event(ModelCreated(name), actor, project)
            self._db.write(lambda connection: add(connection, tables.models, [model_row(made)]), events=[told])
        return made

    def get(self, name: str) -> Model | None:
        return next(iter(self._models(tables.models.c.name == name)), None)

    def need(self, name: str) -> Model:
        found = self.get(name)
        if found is None:
            raise NotFound(f"There is no model {name!r}.", "See `muster models`.")
        return found

    def search(
        self, projects: Sequence[str] | None = None, *, contains: str = "", tags: Mapping[str, str] | None = None
    ) -> list[Model]:
        """Models sorted by name; filtered by projects, by a part of the name, and by tags."""
        where: list[Any] = []
        if projects is not None:
            where.append(tables.models.c.project.in_(list(projects)))
        if contains:
            where.append(tables.models.c.name.icontains(contains, autoescape=True))
        wanted = (tags or {}).items()
        return [one for one in self._models(*where) if all(one.tags.get(key) == value for key, value in wanted)]

    def change(
        self,
        name: str,
        *,
        description: str | None = None,
        tags: Mapping[str, str | None] | None = None,
        new: str | None = None,
        actor: str = SYSTEM,
    ) -> Model:
        """Changes a model, completely or not at all. None leaves a value unchanged; a tag with value None is removed.

        `new` is a new name.
        """
        _check_text(description or "")
        checked("tag", {key: value or "" for key, value in (tags or {}).items()})
        if new is not None:
            _check_name(new)
        with self._db.holding(LOCK):
            old, now = self.need(name), self._db.now()
            if new is not None and self.get(new) is not None:
                raise taken(new)
            doc = {**old.doc, "tags": _without({**old.tags, **tags})} if tags else None
            records = [put_model(name, updated_at=now, **_given({"description": description, "doc": doc}))]
            if new is not None:
                records.append(renamed(name, new, {one.version: one.run for one in self.versions(name)}, now))
            fields = _fields(description=description, tags=tags, name=new)
            told = self._db.event(ModelChanged(name, fields), actor, old.project)
            self._db.write(*records, events=[told])
        return self.need(new or name)

    def delete(self, name: str, actor: str = SYSTEM) -> None:
        """Deletes the model with every version. What they were made from stays."""
        with self._db.holding(LOCK):
            project = self.need(name).project
            records = [version_gone(name, one.version) for one in self.versions(name)]
            table = tables.models

            def record(connection: Connection) -> None:
                connection.execute(delete(tables.model_aliases).where(tables.model_aliases.c.name == name))
                connection.execute(delete(table).where(table.c.name == name))

            self._db.write(*records, record, events=[self._db.event(ModelDeleted(name), actor, project)])

    # --- versions ---------------------------------------------------------------------------------------------------

    def register(
        self,
        name: str,
        *,
        user: str,
        source: str = "",
        run: str = "",
        project: str | None = None,
        description: str = "",
        tags: Mapping[str, str] | None = None,
        status: str = "READY",
        doc: Doc | None = None,
    ) -> Version:
        """Creates the next version, from `checkpoint:RUN/STEP`, `artifact:RUN/PATH`, a run, or any address.

        If `project` is given and the model doesn't exist, it is created in that project.
        """
        _check_text(source, run, user, description)
        kept = checked("tag", tags or {})
        if not source and not run:
            raise Invalid("Nothing was named to register.", "Give a run, `checkpoint:RUN/STEP`, or an address.")
        self._need_clean(source, run, "can't be registered")
        with self._db.holding(LOCK):
            if project is not None and self.get(name) is None:
                self.create(name, project, actor=user)
            model = self.need(name)
            now = self._db.now()
            number = max(self._newest(name), model.doc.get("last", 0)) + 1  # numbers of deleted versions are not reused
            beside = {**(doc or {}), "tags": kept, "status": status}
            made = Version(name, number, run, source or f"run:{run}", "none", user, now, now, description, beside)
            ref = link_of(made)

            def record(connection: Connection) -> None:
                add(connection, tables.model_versions, [version_row(made)])
                put_model(name, updated_at=now, doc=dumps({**model.doc, "last": number}))(connection)
                add_due(connection, made.ref, made.run, now)
                if ref:
                    add(connection, tables.links, [link_row(ref, f"model:{name}/{number}", "registers", now)])

            told = self._db.event(VersionCreated(name, number), user, model.project)
            self._db.write(record, events=[told])
        return made

    def version(self, name: str, version: int) -> Version | None:
        table = tables.model_versions.c
        with self._db.reading() as connection:
            found = find_versions(connection, table.name == name, table.version == version)
        return next(iter(found), None)

    def need_version(self, name: str, version: int) -> Version:
        found = self.version(name, version)
        if found is None:
            self.need(name)
            raise NotFound(f"Model {name!r} has no version {version}.", f"See `muster models show {name}`.")
        return found

    def versions(self, name: str | None = None, *, run: str | None = None) -> list[Version]:
        """The versions of a model, oldest first, or those that a run made."""
        table = tables.model_versions.c
        where = [table.name == name] if name is not None else []
        where += [table.run == run] if run is not None else []
        with self._db.reading() as connection:
            return find_versions(connection, *where)

    def latest(self, name: str, stages: Sequence[str] = STAGES) -> dict[str, Version]:
        """The newest version in each of these stages."""
        found = {one.stage: one for one in self.versions(name)}
        return {stage: found[stage] for stage in stages if stage in found}

    def change_version(
        self,
        name: str,
        version: int,
        *,
        description: str | None = None,
        tags: Mapping[str, str | None] | None = None,
        status: str | None = None,
        doc: Doc | None = None,
        actor: str = SYSTEM,
    ) -> Version:
        """Changes a version. None leaves a value unchanged; a tag with value None is removed."""
        _check_text(description or "")
        checked("tag", {key: value or "" for key, value in (tags or {}).items()})
        with self._db.holding(LOCK):
            old = self.need_version(name, version)
            beside = {**old.doc, **(doc or {}), "tags": _without({**old.tags, **(tags or {})})}
            kept = _given({"description": description, "doc": {**beside, "status": status or old.status}})
            fields = _fields(description=description, tags=tags, status=status, doc=doc)
            project = self.need(name).project
            told = self._db.event(VersionChanged(name, version, fields), actor, project)
            self._db.write(put_version(name, version, updated_at=self._db.now(), **kept), events=[told])
            return self.need_version(name, version)

    def delete_version(self, name: str, version: int, actor: str = SYSTEM) -> None:
        with self._db.holding(LOCK):
            self.need_version(name, version)
            told = self._db.event(VersionDeleted(name, version), actor, self.need(name).project)
            touched = put_model(name, updated_at=self._db.now())
            self._db.write(version_gone(name, version), touched, events=[told])

    # --- helpers ----------------------------------------------------------------------------------------------------

    def _models(self, *where: Any) -> list[Model]:
        with self._db.reading() as connection:
            return find_models(connection, *where)

    def _newest(self, name: str) -> int:
        table = tables.model_versions.c
        with self._db.reading() as connection:
            return connection.execute(select(func.max(table.version)).where(table.name == name)).scalar() or 0


def taken(name: str) -> Conflict:
    """The same error whether the caller may see the model or not."""
    return Conflict(
        f"The name {name!r} is taken.", "Register a version of that model if it is yours, or choose another."
    )


def _check_name(name: str) -> None:
    check_text(name)
    if not name.strip() or len(name) > NAME_MAX or "/" in name or ":" in name:
        raise Invalid(
            f"A model can't be called {name[:60]!r}.", f"Use 1 to {NAME_MAX} characters, without `/` and `:`."
        )


def _check_text(*texts: str) -> None:
    check_text(*texts)
    longest = max(map(len, texts), default=0)
    if longest > TEXT_MAX:
        raise Invalid(f"A text of {longest:,} characters was given.", f"Use at most {TEXT_MAX:,}.")


def _given(changes: Mapping[str, Any]) -> dict[str, Any]:
    kept = {key: value for key, value in changes.items() if value is not None}
    return {**kept, "doc": dumps(kept["doc"])} if "doc" in kept else kept


def _fields(**given: Any) -> list[str]:
    """The names of the given arguments."""
    return [name for name, value in given.items() if value is not None and value != {}]


def _without(values: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if value is not None}
