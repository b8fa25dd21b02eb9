"""Experiments: groups of runs, as in MLflow. Each belongs to a project, and each project has a default experiment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from sqlalchemy import ColumnElement, func, select, update

from muster.core.errors import Conflict, Invalid, NotFound
from muster.core.event import SYSTEM, Event
from muster.core.record_events import (
    ExperimentChanged,
    ExperimentCreated,
    ExperimentEvent,
    ExperimentHidden,
    ExperimentRestored,
)
from muster.store import record_tables as tables
from muster.store.base import Record
from muster.store.codec import check_text, dumps, loads
from muster.store.insert import add
from muster.track.facts import NAME_MAX, checked
from muster.track.record_db import RecordDb
from muster.track.values import void

_LOCK: Final = "experiments"  # lock for creating and renaming, so that names stay unique
_DEFAULT: Final = "default"  # the project whose experiment has the id 0 and MLflow's default name


@dataclass(frozen=True, slots=True)
class Experiment:
    id: int
    name: str
    project: str
    created_at: float
    updated_at: float
    deleted_at: float | None
    artifacts: str  # where its runs' artifacts go; empty: Muster's own store
    tags: dict[str, str]


class Experiments:
    def __init__(self, db: RecordDb) -> None:
        self._db = db
        self._own: dict[str, int] = {}  # project → its default experiment

    def create(
        self,
        name: str,
        project: str,
        *,
        artifacts: str = "",
        tags: Mapping[str, str] | None = None,
        actor: str = SYSTEM,
    ) -> Experiment:
        """Raises Conflict if an experiment has this name already, hidden or not."""
        _check_name(name)
        check_text(project, artifacts)
        kept = checked("tag", tags or {})
        with self._db.holding(_LOCK):
            if self.by_name(name) is not None:
                raise Conflict(f"There is an experiment {name!r} already.", "Use it, or choose another name.")
            return self._make(name, project, artifacts, kept, actor)

    def get(self, experiment: int) -> Experiment | None:
        return next(iter(self._find(tables.experiments.c.id == experiment)), None)

    def by_name(self, name: str) -> Experiment | None:
        return next(iter(self._find(tables.experiments.c.name == name)), None)

    def list(self, projects: Sequence[str] | None = None, *, hidden: bool | None = False) -> Sequence[Experiment]:
        """Newest first. With `hidden` None, lists hidden and visible ones."""
        table = tables.experiments.c
        where: tuple[ColumnElement[bool], ...] = ()
        if projects is not None:
            where += (table.project.in_([*projects]),)
        if hidden is not None:
            where += (table.deleted_at.is_not(None) if hidden else table.deleted_at.is_(None),)
        return self._find(*where)

    def rename(self, experiment: int, name: str, actor: str = SYSTEM) -> Experiment:
        _check_name(name)
        with self._db.holding(_LOCK):
            found, other = self._need(experiment), self.by_name(name)
            if other is not None and other.id != found.id:
                raise Conflict(f"There is an experiment {name!r} already.", "Choose another name.")
            return self._set(found, self._event(ExperimentChanged, actor, found, "name"), name=name)

    def delete(self, experiment: int, actor: str = SYSTEM) -> Experiment:
        """Hides the experiment. Its runs stay, but are no longer listed with it."""
        with self._db.holding(_LOCK):
            found = self._need(experiment)
            return self._set(found, self._event(ExperimentHidden, actor, found), deleted_at=self._db.now())

    def restore(self, experiment: int, actor: str = SYSTEM) -> Experiment:
        with self._db.holding(_LOCK):
            found = self._need(experiment)
            return self._set(found, self._event(ExperimentRestored, actor, found), deleted_at=None)

    def set_tags(self, experiment: int, values: Mapping[str, str | None], actor: str = SYSTEM) -> Experiment:
        """A value of None removes the tag."""
        checked("tag", {key: value for key, value in values.items() if value is not None})
        with self._db.holding(_LOCK):
            found = self._need(experiment)
            both = {**found.tags, **values}
            told = self._event(ExperimentChanged, actor, found, "tags")
            return self._set(found, told, tags={key: value for key, value in both.items() if value is not None})

    def of_project(self, project: str) -> int:
        """The project's default experiment. It is created on first use."""
        known = self._own.get(project)
        if known is not None:
            return known
        with self._db.holding(_LOCK):
            for name in ("Default",) if project == _DEFAULT else (project, f"{project}/default"):
                found = self.by_name(name)
                if found is None:
                    found = self._make(name, project, "", {}, None)
                if found.project == project:
                    return self._own.setdefault(project, found.id)
        raise Conflict(
            f"Project {project!r} can have no experiment of its own: others took {project!r} and its default.",
            "Rename one of them.",
        )

    def _make(self, name: str, project: str, artifacts: str, tags: Mapping[str, str], actor: str | None) -> Experiment:
        """`actor` None: created automatically for its project, without an event."""
        now = self._db.now()
        with self._db.reading() as connection:
            newest = connection.execute(select(func.max(tables.experiments.c.id))).scalar()
        number = 0 if name == "Default" and project == _DEFAULT else max(newest or 0, 0) + 1
        made = Experiment(number, name, project, now, now, None, artifacts, dict(tags))
        told = [self._event(ExperimentCreated, actor, made)] if actor is not None else []
        self._db.write(_added(made), events=told)
        return made

    def _need(self, experiment: int) -> Experiment:
        found = self.get(experiment)
        if found is None:
            raise NotFound(f"There is no experiment {experiment}.", "See `muster runs` for what there is.")
        return found

    def _event(self, kind: type[ExperimentEvent], actor: str, one: Experiment, *fields: str) -> Event:
        return self._db.event(kind(one.id, one.name, list(fields)), actor, one.project)

    def _set(self, old: Experiment, told: Event, **changes: Any) -> Experiment:
        new = replace(old, updated_at=self._db.now(), **changes)
        table = tables.experiments
        row = _row(new)
        change = update(table).where(table.c.id == new.id)
        self._db.write(lambda connection: void(connection.execute(change, row)), events=[told])
        return new

    def _find(self, *where: ColumnElement[bool]) -> Sequence[Experiment]:
        table = tables.experiments
        with self._db.reading() as connection:
            rows = connection.execute(select(table).where(*where).order_by(table.c.id.desc())).all()
        return [_experiment(row) for row in rows]


def _check_name(name: str) -> None:
    check_text(name)
    if not name.strip() or len(name) > NAME_MAX:
        raise Invalid(f"An experiment can't be called {name[:60]!r}.", f"Use 1 to {NAME_MAX} characters.")


def _added(made: Experiment) -> Record:
    return lambda connection: add(connection, tables.experiments, [_row(made)])


def _experiment(row: Sequence[Any]) -> Experiment:
    values = dict(zip(_NAMES, row, strict=True))
    return Experiment(**{**values, "tags": loads(values["tags"])})


def _row(one: Experiment) -> dict[str, Any]:
    return {**{name: getattr(one, name) for name in _NAMES}, "tags": dumps(one.tags)}


_NAMES: Final = tuple(column.name for column in tables.experiments.columns)
