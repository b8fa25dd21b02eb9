"""Resolves what a run was made from: paths and lineage references in its parameters and data sets.

A reference counts only if it belongs to the run's own project or to a project that the run's user is in, since anyone
can write any name. Otherwise it is treated like the name of a data set, and links to nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from sqlalchemy import select

from muster.core.state import State
from muster.store import record_tables as tables
from muster.track.facts import data_ref
from muster.track.lineage import run_in
from muster.track.record_db import RecordDb
from muster.track.rows import chunks

_REFERENCE: Final = re.compile(r"(checkpoint|model|artifact|run):[^\s:@][^\s]{0,500}\Z")
_PATH: Final = re.compile(r"(/|s3://|gs://|az://)[^\s,]{3,1000}\Z")


@dataclass(frozen=True, slots=True)
class RunOwner:
    """Project and user of the run that names references. `new`: runs not yet in the record → their projects."""

    project: str
    user: str
    new: Mapping[str, str] = field(default_factory=dict)


class Origins:
    def __init__(self, db: RecordDb, projects: Callable[[str], Collection[str] | None]) -> None:
        """`projects` returns the projects that a user is in; None: all."""
        self._db, self._projects = db, projects

    def find(self, values: Sequence[str], owner: RunOwner) -> list[str]:
        """The references in these values, in the order found."""
        named = [value for value in values if _REFERENCE.match(value)]
        paths = list({place for value in values if _PATH.match(value) for place in _above(value.rstrip("/"))})
        found = list(dict.fromkeys([*named, *self._checkpoints(paths)]))
        seen = self.visible(found, owner)
        return [ref for ref in found if ref in seen]

    def names(self, texts: Iterable[str], owner: RunOwner) -> dict[str, str]:
        """Each name of a data set → its lineage reference."""
        given = list(texts)
        seen = self.visible([text for text in given if _REFERENCE.match(text)], owner)
        return {text: text if text in seen else data_ref(text) for text in given}

    def visible(self, refs: Sequence[str], owner: RunOwner) -> set[str]:
        """The references that the run may use. References to objects that don't exist are left out."""
        if not refs:
            return set()
        homes = self._homes(refs, owner.new)
        mine = self._projects(owner.user)
        return {ref for ref, home in homes.items() if home == owner.project or mine is None or home in mine}

    def owner(self, run: str) -> RunOwner:
        runs = tables.runs.c
        with self._db.reading() as connection:
            found = connection.execute(select(runs.project, runs.user).where(runs.id == run)).one_or_none()
        return RunOwner(*found) if found is not None else RunOwner("", "")

    def _homes(self, refs: Sequence[str], new: Mapping[str, str]) -> dict[str, str]:
        """The project of each reference that exists."""
        runs, models = tables.runs.c, tables.models.c
        by_run = {ref: run for ref in refs if (run := run_in(ref)) is not None}
        by_model = {ref: ref[6:].rpartition("/")[0] or ref[6:] for ref in refs if ref.startswith("model:")}
        found: dict[str, str] = {}
        with self._db.reading() as connection:
            for names, column, project in ((by_run, runs.id, runs.project), (by_model, models.name, models.project)):
                homes = dict(new) if names is by_run else {}
                for part in chunks(sorted(set(names.values()) - homes.keys())):
                    homes |= dict(connection.execute(select(column, project).where(column.in_(part))).all())
                found |= {ref: homes[name] for ref, name in names.items() if name in homes}
        return found

    def _checkpoints(self, paths: Sequence[str]) -> list[str]:
        if not paths:
            return []
        found, table = list[str](), tables.checkpoints.c
        with self._db.reading() as connection:
            for part in chunks(paths):
                rows = connection.execute(select(table.run, table.step).where(table.path.in_(part)))
                found += [f"checkpoint:{run}/{step}" for run, step in rows]
        return found


def projects_of(state: State, user: str) -> set[str] | None:
    """The projects that a user is in; None for a superuser, who is in all."""
    if any(one.user == user and one.superuser and one.revoked_at is None for one in list(state.tokens.values())):
        return None
    return {name for name, project in list(state.projects.items()) if user in project.members}


def reference(text: str) -> str | None:
    """The text itself if it is a reference, such as `checkpoint:gpt-17/400` or `model:gpt/3`; else None."""
    return text if _REFERENCE.match(text) else None


def _above(path: str) -> list[str]:
    """The path and up to two folders above it: a checkpoint may be given by a file in it."""
    parts = path.split("/")
    return ["/".join(parts[:count]) for count in range(len(parts), max(len(parts) - 3, 2), -1)]
