"""Saved queries: named queries of a user, or of a project, which all of its members share."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import and_, delete, false, or_, select

from muster.api.search import SavedQueryView
from muster.core.errors import Invalid, NotFound
from muster.core.event import SYSTEM
from muster.core.record_events import QueryRemoved, QuerySaved
from muster.store.codec import check_text, dumps, loads
from muster.store.insert import put
from muster.store.record_tables import saved_queries
from muster.track.query.parse import parse, parse_field, parse_sort
from muster.track.record_db import RecordDb
from muster.track.values import void

MOST_COLUMNS: Final = 50
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}\Z")


@dataclass(frozen=True, slots=True)
class SavedQuery:
    """`project` is empty for a query of a user."""

    project: str
    user: str
    name: str
    time: float
    query: str
    sort: str
    columns: tuple[str, ...]

    def to_dict(self) -> SavedQueryView:
        return {
            "project": self.project,
            "user": self.user,
            "name": self.name,
            "time": self.time,
            "query": self.query,
            "sort": self.sort,
            "columns": list(self.columns),
        }


class SavedQueries:
    def __init__(self, db: RecordDb) -> None:
        self._db = db

    def save(
        self, user: str, name: str, query: str, *, project: str = "", sort: str = "", columns: Sequence[str] = ()
    ) -> SavedQuery:
        """Saves a query; replaces one with the same name. Raises QueryError for an invalid query."""
        if not _NAME.match(name):
            hint = "Use letters, digits, `.`, `_` and `-`, at most 100, and begin with a letter or digit."
            raise Invalid(f"A query can't be saved as {name[:120]!r}.", hint)
        check_text(user, query, project, sort, *columns)
        now = self._db.now()
        parse(query, now)
        parse_sort(sort)
        if len(columns) > MOST_COLUMNS:
            raise Invalid(f"{len(columns)} columns were given.", f"Give at most {MOST_COLUMNS}.")
        for column in columns:
            parse_field(column)
        made = SavedQuery(project, user, name, now, query, sort, tuple(columns))
        doc = dumps({"query": query, "sort": sort, "columns": list(columns)})
        # In a project a name is unique: the user who saves it last replaces it.
        row = {"project": project, "user": "" if project else user, "name": name, "time": now}
        row["doc"] = doc if not project else dumps({**loads(doc), "by": user})
        told = self._db.event(QuerySaved(name), user, project)
        self._db.write(lambda connection: put(connection, saved_queries, [row]), events=[told])
        return made

    def list(self, user: str, projects: Sequence[str] | None) -> Sequence[SavedQuery]:
        """The user's own queries, and those of these projects (None: of all)."""
        with self._db.reading() as connection:
            order = (saved_queries.c.project, saved_queries.c.name)
            rows = connection.execute(select(saved_queries).where(_seen(user, projects)).order_by(*order)).all()
        return [_of(row) for row in rows]

    def get(self, user: str, projects: Sequence[str] | None, name: str) -> SavedQuery:
        """The user's own query before a project's; `project/name` is a project's. Raises NotFound."""
        project, slash, rest = name.partition("/")
        found = [
            one
            for one in self.list(user, projects)
            if (one.project == project and one.name == rest if slash else one.name == name)
        ]
        own = [one for one in found if not one.project]
        if not own and len(found) > 1:
            names = ", ".join(f"@{one.project}/{one.name}" for one in found)
            raise Invalid(f"Several projects have a query {name!r}.", f"Say which: {names}.")
        if not found:
            raise NotFound(f"There is no saved query {name!r}.", "See `muster runs queries`.")
        return (own or found)[0]

    def remove(self, saved: SavedQuery, actor: str = SYSTEM) -> None:
        table = saved_queries.c
        user = "" if saved.project else saved.user
        here = and_(table.project == saved.project, table.user == user, table.name == saved.name)
        told = self._db.event(QueryRemoved(saved.name), actor, saved.project)
        gone = delete(saved_queries).where(here)
        self._db.write(lambda connection: void(connection.execute(gone)), events=[told])


def _seen(user: str, projects: Sequence[str] | None) -> Any:
    table = saved_queries.c
    own = and_(table.project == "", table.user == user)
    if projects is None:
        return or_(own, table.project != "")
    return or_(own, table.project.in_(list(projects)) if projects else false())


def _of(row: Any) -> SavedQuery:
    doc = loads(row.doc)
    by = doc.get("by", "") if row.project else row.user
    return SavedQuery(row.project, by, row.name, row.time, doc["query"], doc["sort"], tuple(doc["columns"]))
