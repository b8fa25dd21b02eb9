"""Required fields: those that a project requires of every run, and those that a run lacks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from sqlalchemy import Connection, select, update

from muster.core.rules import Rules
from muster.store import record_tables as tables
from muster.store.base import Record
from muster.store.codec import dumps, loads
from muster.track.fields import given_by_spec, lacking
from muster.track.rows import read_run
from muster.track.values import pairs, void


class Required:
    """`rules` returns the current rules."""

    def __init__(self, rules: Callable[[], Rules]) -> None:
        self._rules = rules

    def wanted(self, project: str) -> tuple[str, ...]:
        return self._rules().project(project).require

    def check(self, run: str, project: str) -> Record:
        """Checks again whether the run has the fields that its project requires, and writes the result."""
        wanted = self.wanted(project)
        if not wanted:
            return _valid(run)

        def record(connection: Connection) -> None:
            found = read_run(connection, run)
            if found is None:
                return
            has = _facts(connection, run, {**found.doc, "owner": found.user, "purpose": found.purpose})
            lacks = lacking(wanted, has)
            others = [one for one in found.problems if not one.startswith(_PREFIX)]
            problems = [*others, *(f"{_PREFIX}{name}" for name in lacks)]
            row = {"valid": not lacks, "problems": dumps(problems)}
            connection.execute(update(tables.runs).where(tables.runs.c.id == run).values(row))

        return record


def _facts(connection: Connection, run: str, doc: Mapping[str, Any]) -> set[str]:
    tags, params, links = tables.run_tags.c, tables.run_params.c, tables.links.c
    own = pairs(connection.execute(select(tags.key, tags.value).where(tags.run == run)))
    given = pairs(connection.execute(select(params.key, params.value).where(params.run == run)))
    query = select(links.source).where(links.target == f"run:{run}", links.role == "reads")
    data = connection.execute(query).scalars().all()
    has = given_by_spec(doc["owner"], doc["purpose"], data, own, given)
    if (doc.get("code") or {}).get("commit") or (doc.get("code") or {}).get("tree"):
        has.add("code")
    if (doc.get("environment") or {}).get("seeds"):
        has.add("seed")
    return has


def _valid(run: str) -> Record:
    """Marks the run valid, for a project that requires nothing (any more)."""
    runs = tables.runs

    def record(connection: Connection) -> None:
        query = select(runs.c.problems).where(runs.c.id == run, runs.c.valid.is_(False))
        old = connection.execute(query).scalar_one_or_none()
        if old is not None:
            others = [one for one in loads(old) if not one.startswith(_PREFIX)]
            row = {"valid": True, "problems": dumps(others)}
            void(connection.execute(update(runs).where(runs.c.id == run).values(row)))

    return record


_PREFIX: Final = "required: "  # prefix of a field's name in the problems of a run
