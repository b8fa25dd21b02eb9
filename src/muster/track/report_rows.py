"""Reads what a report needs of a span of time: runs, their failed attempts, and the waits of jobs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import ColumnElement, Connection, Select, case, func, select

from muster.core.rules import HIGH
from muster.store import record_tables as records
from muster.store import tables
from muster.store.codec import loads
from muster.track.rows import chunks
from muster.track.values import pairs

ROWS_MAX: Final = 400_000  # runs, and waits, of one report: the newest
_PAGE: Final = 5_000  # rows that are read at a time
FAMILY: Final = "family"  # the tag that says which family a run belongs to


@dataclass(frozen=True, slots=True)
class ReportSpan:
    """`projects`: None for all."""

    begin: float
    end: float
    projects: Sequence[str] | None


def read_runs(connection: Connection, span: ReportSpan, others: Iterable[str]) -> Iterator[tuple[Any, ...]]:
    """Runs of jobs that were submitted in the span, those of `others` that were before, and what these are tasks of.

    Each is (id, project, user, name, kind, phase, created_at, ended_at, parent, attempts, family).
    """
    runs = records.runs.c
    chosen = select(
        runs.id, runs.project, runs.user, runs.name, runs.kind, runs.phase, runs.created_at, runs.ended_at,
        runs.parent, runs.attempts, runs.experiment,
    ).where(runs.source == "job", *_visible(span))  # fmt: skip
    own, known, parents = _experiments(connection), set[str](), set[str]()
    submitted = (runs.created_at >= span.begin, runs.created_at < span.end)
    first = [chosen.where(*submitted).order_by(runs.created_at.desc()).limit(ROWS_MAX)]

    def read(queries: Iterable[Select[Any]]) -> Iterator[tuple[Any, ...]]:
        for query in queries:
            for part in connection.execute(query).partitions(_PAGE):
                tags = _families(connection, [row[0] for row in part])
                for id, project, user, name, kind, phase, created, ended, parent, attempts, experiment in part:
                    known.add(id)
                    if parent is not None:
                        parents.add(parent)
                    family = tags.get(id) or own.get(experiment, "")
                    yield id, project, user, name, kind, phase, created, ended, parent, attempts, family

    yield from read(first)
    for wanted in (others, parents):
        yield from read(chosen.where(runs.id.in_(part)) for part in chunks(list(set(wanted) - known)))


def read_attempts(connection: Connection, runs: Iterable[str]) -> Iterator[tuple[Any, ...]]:
    """Attempts of these runs, in their order: (run, number, running_at, ended_at, outcome, code, node)."""
    columns = tables.attempts.c
    for part in chunks(list(runs)):
        query = select(columns.job, columns.number, columns.doc).where(columns.job.in_(part))
        for run, number, text in connection.execute(query.order_by(columns.job, columns.number)):
            doc = loads(text)
            reason = doc.get("reason") or {}
            named = (reason.get("data") or {}).get("node") or _first_node(doc)
            code = reason.get("code") or ""
            yield run, number, doc.get("running_at"), doc.get("ended_at"), doc.get("outcome"), code, str(named)


def read_pools(connection: Connection, runs: Iterable[str]) -> dict[tuple[str, int], tuple[str, int]]:
    """The pool and the number of workers of each attempt of these runs."""
    columns, found = tables.attempts.c, dict[tuple[str, int], tuple[str, int]]()
    for part in chunks(list(runs)):
        for run, number, text in connection.execute(select(tables.attempts).where(columns.job.in_(part))):
            doc = loads(text)
            found[(run, number)] = (doc.get("pool") or "", len(doc.get("workers") or ()))
    return found


def read_waits(connection: Connection, span: ReportSpan) -> Iterator[tuple[float, float, str, bool]]:
    """First starts in the span as (started_at, seconds of waiting, class of work, high priority); from one index."""
    for part in connection.execute(waits_query(span)).partitions(_PAGE):
        for started, wait, work, high in part:
            yield started, wait, work, bool(high)


def waits_query(span: ReportSpan) -> Select[Any]:
    jobs = tables.jobs.c
    high = case((jobs.priority >= HIGH, 1), else_=0)
    where: list[ColumnElement[bool]] = [jobs.started_at >= span.begin, jobs.started_at < span.end]
    if span.projects is not None:
        # Avoids the index of projects: it would lead to every job of the projects, and to its long row.
        where.append(func.coalesce(jobs.project, "").in_(span.projects))
    query = select(jobs.started_at, jobs.started_at - jobs.submitted_at, jobs.work, high)
    return query.where(*where).order_by(jobs.started_at.desc()).limit(ROWS_MAX)


def _visible(span: ReportSpan) -> Iterator[ColumnElement[bool]]:
    if span.projects is not None:
        yield records.runs.c.project.in_(span.projects)


def _families(connection: Connection, runs: Sequence[str]) -> dict[str, str]:
    tags, found = records.run_tags.c, dict[str, str]()
    for part in chunks(runs):
        query = select(tags.run, tags.value).where(tags.key == FAMILY, tags.run.in_(part))
        found |= pairs(connection.execute(query))
    return found


def _experiments(connection: Connection) -> dict[int, str]:
    """The names of experiments, without those that every run of a project is in by default."""
    rows = connection.execute(
        select(records.experiments.c.id, records.experiments.c.name, records.experiments.c.project)
    )
    return {number: name for number, name, of in rows if number and name not in (of, f"{of}/default")}


def _first_node(doc: dict[str, Any]) -> str:
    workers = doc.get("workers") or ()
    return str(workers[0].get("at") or workers[0]["seat"]["node"]) if workers else ""
