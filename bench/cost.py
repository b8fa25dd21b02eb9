"""Reports over a cost ledger of a million attempts, and what one more charge costs with so many there and with none.

A year of 50 projects with 10 users each, 6 families a project, 8 pools, three of them spot. On one day a user works on
one family in one or two pools. SQLite with its durable settings. Entries are written as the server does, by
`cost_record`. Each report is timed for a month and for the year.
"""

from __future__ import annotations

import random
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any, cast
from zoneinfo import ZoneInfo

from sqlalchemy.engine import make_url

from _machine import write
from muster.control.cost_report import CostReader, CostScope
from muster.cost.report.days import days_of
from muster.server.routes.cost_export import focus_lines
from muster.store import record_tables as tables
from muster.store.connect import Database, connect
from muster.store.insert import add
from muster.track.cost_rows import ClassRow, cost_record
from muster.track.record_db import RecordDb

ATTEMPTS = 1_000_000
CHUNK = 10_000
RUNS_PER_ATTEMPT = 0.7
YEAR = 365
FIRST = date(2026, 1, 1)
NOW = datetime(2026, 12, 31, 12, tzinfo=ZoneInfo("UTC")).timestamp()
GOAL = 1.0  # seconds
CHARGES = 200
POOLS = [(f"pool-{number}", "spot" if number < 3 else "reserved" if number < 5 else "on_demand") for number in range(8)]


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        database = connect(make_url(f"sqlite:///{Path(folder) / 'costs.db'}"))
        with database.writing() as connection:
            tables.runs.metadata.create_all(connection)
        empty = charging(database, 0)
        began = time.perf_counter()
        fill(database)
        filled = time.perf_counter() - began
        full = charging(database, ATTEMPTS + CHARGES)
        months, years = reports(database, "2026-12"), reports(database, None)
        result: dict[str, Any] = {
            "claim": "any report of a month takes less than 1 s in a ledger of 1,000,000 attempts; a charge costs what "
            "it costs with none there",
            "attempts": ATTEMPTS,
            "rows": {name: count(database, name) for name in ("cost_charges", "cost_days", "cost_classes")},
            "filled_s": round(filled, 1),
            "report_of_a_month_s": months,
            "report_of_the_year_s": years,
            "charge_ms": {"with none": empty, "with a million": full},
            "focus_rows_per_s": focus(database),
            "held": {
                "reports of a month": max(months.values()) < GOAL,
                "charge": full["processor"] < 1.5 * empty["processor"],
            },
        }
        database.close()
    write("cost", result)


def fill(database: Database) -> None:
    drawn = random.Random(7)
    runs: list[dict[str, Any]] = []
    entries: list[dict[str, Any]] = []
    for seq in range(ATTEMPTS):
        entries.append(entry(drawn, seq + CHARGES, runs))
        if len(entries) == CHUNK:
            store(database, entries, runs)
            entries, runs = [], []


def store(database: Database, entries: list[dict[str, Any]], runs: list[dict[str, Any]]) -> None:
    with database.writing() as connection:
        cost_record(entries, classes(entries))(connection)
        add(connection, tables.runs, runs)
        series = [_series(run["id"]) for run in runs]
        add(connection, tables.metric_series, series)


def entry(drawn: random.Random, seq: int, runs: list[dict[str, Any]]) -> dict[str, Any]:
    if not runs or drawn.random() < RUNS_PER_ATTEMPT:
        project = drawn.randrange(50)
        runs.append(_run(f"run-{seq}", f"project-{project}", f"user-{project}-{drawn.randrange(10)}", drawn))
    run, number = runs[-1], min(YEAR - 1, seq * YEAR // ATTEMPTS)  # attempts are charged when they end: in order
    person = sum(map(ord, run["user"])) + number
    pool, price = POOLS[(person + drawn.randrange(2)) % len(POOLS)]
    hours, amount = drawn.randrange(1, 200) / 10, drawn.randrange(1, 400_000_000)
    lost = drawn.random() < 0.05
    return {
        "seq": seq, "part": 0, "run": run["id"], "attempt": 1, "day": (FIRST + timedelta(days=number)).isoformat(),
        "begin": 0, "end": 3_600_000_000, "project": run["project"], "user": run["user"],
        "queue": f"queue-{run['project']}", "kind": "train", "family": f"family-{run['project']}-{person % 6}",
        "environment": "", "pool": pool, "account": "platform" if lost else "project", "price": price,
        "unit": "accelerator", "currency": "USD", "amount": amount,
        "listed": amount * 2 if price == "spot" else amount, "held": int(hours * 3_600_000_000), "unpriced": 0,
        "rate": 2_990_000_000, "book": 1, "correction": False, "cause": "node_lost" if lost else "",
    }  # fmt: skip


def classes(entries: list[dict[str, Any]]) -> Iterator[ClassRow]:
    for one in entries:
        where = (one["day"], one["project"], one["pool"], one["account"], one["currency"])
        part = one["amount"] // 10
        yield ClassRow(*where, "training", "", one["amount"] - 2 * part)
        yield ClassRow(*where, "starting.ranks", "", part)
        yield ClassRow(*where, "lost", one["cause"], part)


def charging(database: Database, first: int) -> dict[str, float]:
    """Milliseconds of a transaction with the entry of one charge, and of its processor time."""
    drawn, seen = random.Random(first), list[tuple[float, float]]()
    for number in range(CHARGES):
        rows = [entry(drawn, first + number, [])]
        elapsed, processor = time.perf_counter(), time.thread_time()
        with database.writing() as connection:
            cost_record(rows, classes(rows))(connection)
        seen.append((time.perf_counter() - elapsed, time.thread_time() - processor))
    took, used = zip(*seen, strict=True)
    return {"median": round(1000 * statistics.median(took), 3), "processor": round(1000 * statistics.median(used), 3)}


def reports(database: Database, month: str | None) -> dict[str, float]:
    zone = ZoneInfo("UTC")
    days = days_of(month, None, None if month else FIRST.isoformat(), None if month else "2026-12-31", NOW, zone)
    scope, one_run = CostScope(days, None, {}), CostScope(days, None, {"run": f"run-{CHARGES}"})
    reader = CostReader(_db(database), lambda read: [], NOW)
    wanted: dict[str, Callable[[], object]] = {
        "by project": lambda: reader.report(scope, ("project",)),
        "by project, user, pool": lambda: reader.report(scope, ("project", "user", "pool")),
        "by family and day": lambda: reader.report(scope, ("family", "day")),
        "by run, the largest": lambda: reader.report(scope, ("run",), 100),
        "of one project": lambda: reader.report(CostScope(days, ["project-7"], {}), ("user", "week")),
        "families": lambda: reader.families(scope),
        "runs by metric": lambda: reader.runs(scope, "loss", "lower"),
        "waste": lambda: reader.waste(scope),
        "forecast": lambda: reader.forecast(scope),
        "change": lambda: reader.changes(scope),
        "spot": lambda: reader.spot(scope),
        "hours": lambda: reader.hours(scope),
        "statement of a project": lambda: reader.statement(scope, "project-7"),
        "explain a run": lambda: reader.explain(one_run, (-1, -1), 100),
    }
    if month is None:  # refused: they read entries, and not sums by day
        wanted = {name: make for name, make in wanted.items() if name not in ("by run, the largest", "families",
                  "runs by metric", "forecast")}  # fmt: skip
    return {name: timed(make) for name, make in wanted.items()}


def timed(make: Callable[[], object]) -> float:
    """Processor seconds of the second call: other programs on the machine don't count."""
    make()
    began = time.process_time()
    make()
    return round(time.process_time() - began, 3)


def focus(database: Database) -> int:
    scope = CostScope(days_of("2026-12", None, None, None, NOW, ZoneInfo("UTC")), None, {})
    began, rows = time.process_time(), 0
    for piece in focus_lines(CostReader(_db(database), lambda read: [], NOW), scope):
        rows += piece.count(b"\r\n")
    return round(rows / (time.process_time() - began))


def count(database: Database, table: str) -> int:
    with database.reading() as connection:
        return int(connection.exec_driver_sql(f"SELECT count(*) FROM {table}").scalar_one())


def _db(database: Database) -> RecordDb:
    return RecordDb(database, cast(Any, None), lambda: NOW)


def _run(name: str, project: str, user: str, drawn: random.Random) -> dict[str, Any]:
    phase = drawn.choice(("succeeded", "succeeded", "failed"))
    return {
        "id": name, "project": project, "experiment": 0, "name": name, "user": user, "kind": "train", "source": "job",
        "phase": phase, "created_at": 0.0, "started_at": None, "ended_at": None, "parent": None, "deleted_at": None,
        "valid": True, "problems": "[]", "purpose": "", "attempts": 1, "code_commit": "", "code_branch": "",
        "code_dirty": False, "code_tree": "", "doc": "{}",
    }  # fmt: skip


def _series(run: str) -> dict[str, Any]:
    value = random.Random(run).random()
    return {
        "run": run, "name": "loss", "rank": 0, "points": 1, "nans": 0, "last": value, "last_nan": False, "last_step": 1,
        "last_time": 0.0, "last_attempt": 1, "low": value, "low_step": 1, "high": value, "high_step": 1,
    }  # fmt: skip


if __name__ == "__main__":
    main()
