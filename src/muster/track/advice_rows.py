"""Reads what advice on cost needs of runs: what each cost in each pool, the version of its code, and its saves."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from statistics import median
from typing import Final, NamedTuple

from sqlalchemy import Connection, func, select

from muster.store.codec import loads
from muster.store.cost_tables import cost_charges
from muster.store.record_tables import checkpoints, run_attempts, runs
from muster.track.failures import code_version
from muster.track.rows import chunks

RUNS_MAX: Final = 2_000  # those that cost most
SAVES_MAX: Final = 50  # of a run, the newest


class RunCost(NamedTuple):
    """What a run cost in one pool. `held`: thousandths of units × milliseconds; `begin`: microseconds since 1970."""

    run: str
    project: str
    pool: str
    unit: str
    amount: int
    held: int
    begin: int


class Saves(NamedTuple):
    every: float | None  # seconds between two saves
    seconds: float | None  # that one takes


def read_run_costs(connection: Connection, projects: Sequence[str] | None, since: str, currency: str) -> list[RunCost]:
    """Charges from the day `since` on, whoever pays them, of the runs that cost most."""
    row = cost_charges.c
    where = [row.day >= since, row.run != "", row.currency == currency]
    if projects is not None:
        where.append(row.project.in_(list(projects)))
    total = func.sum(row.amount)
    chosen = select(row.run, row.project, row.pool, row.unit, total, func.sum(row.held), func.min(row.begin))
    query = chosen.where(*where).group_by(row.run, row.project, row.pool, row.unit)
    found = connection.execute(query.order_by(total.desc()).limit(RUNS_MAX))
    return [RunCost(*one[:4], int(one[4]), int(one[5]), int(one[6])) for one in found]


def read_codes(connection: Connection, ids: Iterable[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for part in chunks(list(ids)):
        query = select(runs.c.id, runs.c.code_commit, runs.c.code_dirty, runs.c.code_tree).where(runs.c.id.in_(part))
        found |= {run: code_version(commit, dirty, tree) for run, commit, dirty, tree in connection.execute(query)}
    return found


def read_saves(connection: Connection, ids: Iterable[str]) -> Iterator[tuple[str, Saves]]:
    """Runs that saved at least twice in one attempt."""
    for run in ids:
        columns = checkpoints.c
        query = select(columns.attempt, columns.time, columns.doc).where(columns.run == run)
        rows = connection.execute(query.order_by(columns.time.desc()).limit(SAVES_MAX)).all()
        gaps = [
            one.time - other.time
            for one, other in pairwise(rows)
            if one.attempt == other.attempt and one.time > other.time
        ]
        took = [loads(one.doc).get("seconds") for one in rows]
        known = [float(one) for one in took if isinstance(one, int | float) and 0 < one < 1e9]
        if gaps:
            yield run, Saves(median(gaps), median(known) if known else None)


def read_device_memory(connection: Connection, ids: Iterable[str]) -> dict[str, int]:
    """Bytes of the first device of each run, as its driver says."""
    found: dict[str, int] = {}
    for part in chunks(list(ids)):
        query = select(run_attempts.c.run, run_attempts.c.doc).where(run_attempts.c.run.in_(part))
        for run, text in connection.execute(query):
            environment = loads(text).get("environment")
            devices = environment.get("devices") if isinstance(environment, dict) else None
            first = devices[0] if isinstance(devices, list) and devices else None
            memory = first.get("memory") if isinstance(first, dict) else None
            if isinstance(memory, int) and 0 < memory < 2**50:
                found[run] = memory
    return found
