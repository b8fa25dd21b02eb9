"""The report of a month: 100,000 runs over seven months, a fifth of which failed or started again, on SQLite.

A figure is the whole report as the server makes it for a request: the month and the six before it, whose values are
kept for an hour. "First time" is without what is kept. The goal: a second.
"""

from __future__ import annotations

import argparse
import gc
import json
import random
import statistics
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from zoneinfo import ZoneInfo

from _machine import write
from muster.control.goodput import GoodputLedger
from muster.control.report import KeptValues, ReportReader
from muster.core.period import months
from muster.monitor.rollup import DAY, held, to_text
from muster.server.leader import GC_THRESHOLD
from muster.store import record_tables as records
from muster.store import tables
from muster.store.codec import dumps
from muster.store.commit import GroupCommit
from muster.store.registry import open_store
from muster.track.record_db import RecordDb
from muster.track.tracking import Tracking

NOW = datetime(2026, 11, 1, tzinfo=UTC).timestamp() - 1
SPAN = 214 * DAY  # from April to October
GOAL = 1.0
POOLS = ("a100", "h100", "spot")
PROJECTS = ("vision", "language", "speech")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    gc.set_threshold(*GC_THRESHOLD)  # as the server does
    with tempfile.TemporaryDirectory() as folder:
        store: Any = open_store(f"sqlite:///{Path(folder)}/muster.db")
        commit = GroupCommit(store, on_commit=lambda events: None)
        commit.start()
        db = RecordDb(store.database, commit, lambda: NOW)
        fill(db, args.runs)
        ledger = GoodputLedger(store, cast(Tracking, SimpleNamespace(db=db)), lambda: NOW)

        def ask(kept: KeptValues, projects: list[str] | None = None) -> Any:
            reader = ReportReader(store, db, ledger, lambda want: [], NOW - SPAN, kept, lambda now, projects: [])
            return reader.report(periods, projects, NOW, "UTC")

        kept = KeptValues()
        periods = months("2026-10", NOW, ZoneInfo("UTC"), 6)
        result = {
            "runs": args.runs,
            "goal_s": GOAL,
            "all_projects": timed(partial(ask, kept), args.rounds),
            "all_projects_first_time": timed(lambda: ask(KeptValues()), args.rounds),
            "one_project": timed(partial(ask, kept, [PROJECTS[0]]), args.rounds),
            "one_project_first_time": timed(lambda: ask(KeptValues(), [PROJECTS[0]]), args.rounds),
        }
        commit.close()
        store.close()
    write("report", result)


def timed(ask: Callable[[], Any], rounds: int) -> dict[str, Any]:
    ask()
    wall, cpu = [], []
    for _ in range(rounds):
        begun, spent = time.perf_counter(), time.process_time()
        ask()
        wall.append(time.perf_counter() - begun)
        cpu.append(time.process_time() - spent)
    return {"median_s": round(statistics.median(wall), 3), "median_cpu_s": round(statistics.median(cpu), 3)}


def fill(db: RecordDb, count: int) -> None:
    """Rows as the server writes them, straight into the tables."""
    chance = random.Random(5)
    for start in range(0, count, 5000):
        rows: dict[Any, list[dict[str, Any]]] = {}
        for number in range(start, min(start + 5000, count)):
            add_run(rows, number, NOW - SPAN + SPAN * number / count, chance)
        db.write(partial(insert, rows=rows))
    use = []
    for day in range(int(NOW - SPAN) // DAY * DAY, int(NOW), DAY):
        for pool in ("", *POOLS):
            sample = {"used": 700_000, "there": 1_000_000, "out": 50_000, "free": 250_000, "usable": 200_000}
            (bucket,) = (one for _, one in held(sample, 1000 * day, 1000 * (day + DAY), DAY))
            use.append(
                {"resolution": DAY, "start": day, "pool": pool, "until": 1000 * (day + DAY), "data": to_text(bucket)}
            )
    db.write(partial(insert, rows={tables.rollups: use}))


def insert(connection: Any, rows: dict[Any, list[dict[str, Any]]]) -> None:
    for table, values in rows.items():
        connection.execute(table.insert(), values)


def add_run(rows: dict[Any, list[dict[str, Any]]], number: int, created: float, chance: random.Random) -> None:
    run, project, pool = f"run-{number}", chance.choice(PROJECTS), chance.choice(POOLS)
    phase = chance.choices(["succeeded", "failed", "stopped"], [80, 12, 8])[0]
    tries = 2 if chance.random() < 0.08 else 1
    begin, took = created + chance.expovariate(1 / 300), chance.expovariate(1 / 7200)
    end = min(NOW, begin + took)
    spec = json.dumps({"name": f"run-{number % 500}", "run": "python train.py " + "x" * 800})
    base = {
        "id": run,
        "project": project,
        "user": f"user-{number % 40}",
        "name": f"run-{number % 500}",
        "kind": "train",
    }
    rows.setdefault(records.runs, []).append({
        **base, "experiment": 0, "source": "job", "phase": phase, "created_at": created, "started_at": begin,
        "ended_at": end, "parent": None, "deleted_at": None, "valid": True, "problems": "[]", "purpose": "a sentence",
        "attempts": tries, "code_commit": f"{number:040x}", "code_branch": "main", "code_dirty": False, "code_tree": "",
        "doc": json.dumps({"spec": spec, "environment": "x" * 1500}),
    })  # fmt: skip
    rows.setdefault(tables.jobs, []).append({
        **base, "number": number + 1, "queue": "default", "phase": phase, "priority": 80 if number % 9 == 0 else 50,
        "submitted_at": created, "finished_at": end, "key": None, "spec": spec, "doc": json.dumps({"doc": "x" * 900}),
        "started_at": begin, "work": "single" if number % 3 else "distributed", "parent": None,
    })  # fmt: skip
    if number % 5 == 0:
        rows.setdefault(records.run_tags, []).append({"run": run, "key": "family", "value": f"family-{number % 60}"})
    for attempt in range(1, tries + 1):
        failed = attempt < tries or phase == "failed"
        at, until = begin + (attempt - 1) * took / tries, begin + attempt * took / tries
        code = "user_error" if number % 2 else "node_lost"
        reason = {"code": code, "message": "it ended", "hint": "", "data": {"node": f"n{number % 64}"}}
        seat = {"node": f"n{number % 64}", "devices": list(range(8)), "share": 1000}
        doc = {
            "number": attempt, "planned_at": at, "workers": [{"seat": seat, "state": "ended", "exit": None, "at": ""}],
            "running_at": at + 5, "ended_at": until, "outcome": "failed" if failed else phase,
            "reason": reason if failed else None, "from_step": None, "pool": pool, "step": 100, "room": None,
        }  # fmt: skip
        rows.setdefault(tables.attempts, []).append({"job": run, "number": attempt, "doc": dumps(doc)})
        micro = int((until - at) * 1e6)
        parts = {"training": micro * 8 // 10, "starting.launch": micro // 20, "starting.import": micro // 20,
                 "data": micro // 20, "saving": micro // 20, "lost": micro // 50}  # fmt: skip
        day = {"parts": parts, "waited": 0, "steps": 100, "repeats": 0, "pool": pool, "seats": 1}
        rows.setdefault(records.goodput, []).append({
            "run": run, "attempt": attempt, "day": int(at) // DAY * DAY, "project": project, "queue": "default",
            "unit": "accelerator", "units": 8000, "doc": dumps(day), "stale": False,
        })  # fmt: skip


if __name__ == "__main__":
    main()
