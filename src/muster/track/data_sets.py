"""Data sets by what runs said of them: versions with their readers and writers, from the links of the lineage."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final, cast

from sqlalchemy import ColumnElement, and_, case, func, or_, select, union_all

from muster.api.data_sets import DataUse, DataVersion
from muster.store import record_tables as tables
from muster.store.codec import loads
from muster.track.record_db import RecordDb
from muster.track.rows import chunks

VERSIONS_MAX: Final = 500  # in one answer
USES_MAX: Final = 200
_PREFIX: Final = "data:"


class DataSets:
    def __init__(self, db: RecordDb) -> None:
        self._db = db

    def versions(
        self, visible: Collection[str] | None, *, contains: str = "", name: str | None = None
    ) -> tuple[list[DataVersion], bool]:
        """The last used first, and whether there are more. `visible`: projects whose runs count; None: all of them."""
        links = _links()
        reads, writes = (func.sum(case((links.c.role == role, 1), else_=0)) for role in ("reads", "writes"))
        last = func.max(links.c.time)
        query = select(links.c.ref, reads, writes, func.min(links.c.time), last)
        query = _seen(query.join(tables.runs, tables.runs.c.id == links.c.run), visible)
        if contains:
            plain = func.lower(func.substr(links.c.ref, len(_PREFIX) + 1))
            query = query.where(plain.contains(contains.lower(), autoescape=True))
        if name is not None:
            query = query.where(_named(links.c.ref, name))
        query = query.group_by(links.c.ref).order_by(last.desc(), links.c.ref).limit(VERSIONS_MAX + 1)
        with self._db.reading() as connection:
            found = connection.execute(query).all()
            known: dict[str, Mapping[str, Any]] = {}
            for part in chunks([row[0] for row in found[:VERSIONS_MAX]]):
                known |= {ref: loads(doc) for ref, doc in connection.execute(_told(part, visible))}
        rows = [_version(*row, about=known.get(row[0], {})) for row in found[:VERSIONS_MAX]]
        return rows, len(found) > VERSIONS_MAX

    def uses(self, name: str, visible: Collection[str] | None) -> tuple[list[DataUse], bool]:
        """The runs that used any version of it, or the version that the name has; the newest first."""
        links, runs = _links(), tables.runs.c
        columns = (links.c.ref, links.c.role, links.c.time, links.c.doc)
        about = (runs.id, runs.name, runs.project, runs.user, runs.phase)
        query = _seen(select(*columns, *about).join(tables.runs, runs.id == links.c.run), visible)
        query = query.where(_named(links.c.ref, name)).order_by(links.c.time.desc(), runs.id).limit(USES_MAX + 1)
        with self._db.reading() as connection:
            found = connection.execute(query).all()
        uses: list[DataUse] = []
        for ref, role, time, doc, run, title, project, user, phase in found[:USES_MAX]:
            uses.append({
                "version": split(ref)[1], "run": run, "name": title, "project": project, "user": user, "phase": phase,
                "role": role, "time": time, "digest": str(loads(doc).get("digest") or ""),
            })  # fmt: skip
        return uses, len(found) > USES_MAX


def split(ref: str) -> tuple[str, str]:
    """Name and version of `data:c4-en@v3`."""
    name, _, version = ref.removeprefix(_PREFIX).partition("@")
    return name, version


def _links() -> Any:
    """Links of runs with data sets, as ref, run, role, time and doc."""
    links = tables.links.c
    one = select(
        links.source.label("ref"), func.substr(links.target, 5).label("run"), links.role, links.time, links.doc
    ).where(links.role == "reads", links.source.startswith(_PREFIX), links.target.startswith("run:"))
    other = select(
        links.target.label("ref"), func.substr(links.source, 5).label("run"), links.role, links.time, links.doc
    ).where(links.role == "writes", links.target.startswith(_PREFIX), links.source.startswith("run:"))
    return union_all(one, other).subquery()


def _told(refs: Sequence[str], visible: Collection[str] | None) -> Any:
    """For each, what the last run said that said more than its name."""
    all_, runs = _links(), tables.runs.c
    said = select(all_.c.ref, func.max(all_.c.time).label("time")).join(tables.runs, runs.id == all_.c.run)
    last = _seen(said, visible).where(all_.c.ref.in_(refs), all_.c.doc != "{}").group_by(all_.c.ref).subquery()
    links = _links()
    query = select(links.c.ref, links.c.doc).join(tables.runs, runs.id == links.c.run)
    same = and_(links.c.ref == last.c.ref, links.c.time == last.c.time)
    return _seen(query.join(last, same), visible).where(links.c.doc != "{}")


def _named(ref: ColumnElement[str], name: str) -> ColumnElement[bool]:
    if "@" in name:
        return ref == f"{_PREFIX}{name}"
    return or_(ref == f"{_PREFIX}{name}", ref.startswith(f"{_PREFIX}{name}@", autoescape=True))


def _seen(query: Any, visible: Collection[str] | None) -> Any:
    """Only links of runs that are not hidden, of these projects; `query` has the runs joined."""
    runs = tables.runs.c
    mine = runs.project.in_(sorted(visible)) if visible is not None else runs.project.is_not(None)
    return query.where(and_(runs.deleted_at.is_(None), mine))


def _version(
    ref: str, readers: int, writers: int, first: float, last: float, *, about: Mapping[str, Any]
) -> DataVersion:
    name, version = split(ref)
    rows, size = (about.get(key) if type(about.get(key)) is int else None for key in ("rows", "bytes"))
    return cast(DataVersion, {
        "ref": ref, "name": name, "version": version, "readers": int(readers), "writers": int(writers),
        "first_at": first, "last_at": last, "digest": str(about.get("digest") or ""),
        "uri": str(about.get("uri") or ""), "rows": rows, "bytes": size,
    })  # fmt: skip
