"""Search: 10,000 runs of 20 parameters, 10 metrics and 5 tags, asked by a metric and two parameters.

A figure is the first page of 100 runs with all that a listing shows of them, as the server makes it for a request; the
same through HTTP and `Client.runs` is measured beside it. SQLite and PostgreSQL, each with its usual durability.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from _databases import databases
from _machine import write
from muster.client import Client
from muster.store import record_tables as tables
from muster.store.commit import GroupCommit
from muster.store.registry import open_store
from muster.track.record_db import RecordDb
from muster.track.search import Search
from submit_latency import muster_server

RUNS, PARAMS, METRICS, TAGS = 10_000, 20, 10, 5
PAGE = 100
GOAL_MS = 50
NOW = 1_780_000_000.0
QUESTIONS = {
    "metric_and_two_params": ("metrics.m3 < 0.5 and params.p1 >= 0.25 and params.p2 < 0.75", ""),
    "the_same_sorted_by_the_metric": ("metrics.m3 < 0.5 and params.p1 >= 0.25 and params.p2 < 0.75", "metrics.m3"),
    "few_found": ("metrics.m3 < 0.01 and params.p1 >= 0.9 and params.p2 < 0.1", ""),
    "nothing_found": ("metrics.m3 < 0.01 and params.p1 >= 0.9 and params.p2 > 1", ""),
    "text_and_tag": ("tags.t1 = v3 and params.s4 = b and failed", ""),
    "regular_expression": ("name ~ 'run-[0-4]+$' and user = ada", ""),
    "all_by_metric": ("", "-metrics.m5"),
    "newest": ("", ""),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=RUNS)
    parser.add_argument("--rounds", type=int, default=50)
    given = parser.parse_args()
    results: dict[str, Any] = {"runs": given.runs, "params": PARAMS, "metrics": METRICS, "tags": TAGS, "page": PAGE}
    for name, url in databases():
        with open_record_db(url) as db:
            begun = time.perf_counter()
            fill(db, given.runs)
            print(f"{name}: {given.runs:,} runs written in {time.perf_counter() - begun:.1f} s")
            results[name] = {
                question: measure(Search(db), *asked, given.rounds) for question, asked in QUESTIONS.items()
            }
    results["sqlite_http"] = through_http(given.runs, given.rounds)
    first = "metric_and_two_params"
    worst = max(results[name][first]["p50_ms"] for name in ("sqlite", "postgresql") if name in results)
    results["goal"] = {"asked": QUESTIONS[first][0], "goal_ms": GOAL_MS, "worst_p50_ms": worst}
    print(f"a metric and two parameters over {given.runs:,} runs: {worst} ms at most (goal {GOAL_MS} ms)")
    write("track_search", results)


@contextmanager
def open_record_db(url: str) -> Iterator[RecordDb]:
    store = open_store(url)
    commit = GroupCommit(store, on_commit=lambda events: None)
    commit.start()
    try:
        assert store.database is not None
        yield RecordDb(store.database, commit, lambda: NOW)
    finally:
        commit.close()
        store.close()


def fill(db: RecordDb, count: int) -> None:
    """Rows as the record has them, straight into its tables."""
    chance = random.Random(5)
    for start in range(0, count, 1000):
        numbers = range(start, min(start + 1000, count))
        rows = {table: [row for n in numbers for row in make(n, chance)] for table, make in _ROWS.items()}

        def record(connection: Any, rows: dict[Any, list[dict[str, Any]]] = rows) -> None:
            for table, values in rows.items():
                connection.execute(table.insert(), values)

        db.write(record)
    if db.database.kind == "postgresql":  # which does so by itself within a minute; Muster's SQLite never does
        with db.database.writer.connect() as connection:
            connection.exec_driver_sql("ANALYZE")
            connection.commit()


def measure(search: Search, query: str, sort: str, rounds: int) -> dict[str, Any]:
    def ask() -> int:
        page = search.find(query, projects=None, sort=sort, limit=PAGE)
        return len(search.views(page.ids))

    return {"asked": query, "sort": sort, **timed(ask, rounds)}


def through_http(count: int, rounds: int) -> dict[str, Any]:
    """Of a whole call of the client: the request, the answer of 100 runs as JSON, and objects made of it."""
    query, sort = QUESTIONS["metric_and_two_params"]
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder) / "home"
        home.mkdir()
        with open_record_db(f"sqlite:///{home}/muster.db") as db:
            fill(db, count)
        with muster_server(home) as client:
            return {"asked": query, **timed(lambda: _ask(client, query, sort), rounds)}


def _ask(client: Client, query: str, sort: str) -> int:
    return len(client.runs(query, sort=sort, limit=PAGE))


def timed(ask: Callable[[], int], rounds: int) -> dict[str, Any]:
    found = ask()
    taken = []
    for _ in range(rounds):
        begun = time.perf_counter()
        ask()
        taken.append(1000 * (time.perf_counter() - begun))
    taken.sort()
    middle, late = statistics.median(taken), taken[int(0.95 * (len(taken) - 1))]
    return {"shown": found, "p50_ms": round(middle, 2), "p95_ms": round(late, 2), "max_ms": round(taken[-1], 2)}


def _run_id(n: int) -> str:
    return f"run-{n}"


def _run(n: int, chance: random.Random) -> list[dict[str, Any]]:
    doc = {"command": "python train.py", "environment": {"packages": {f"package-{i}": "1.2.3" for i in range(60)}}}
    phase = chance.choice(["succeeded", "succeeded", "failed", "stopped"])
    made = {
        "id": _run_id(n), "project": "default", "experiment": 0, "name": f"run-{n % 50}",
        "user": chance.choice(["ada", "bob"]),
        "kind": "train", "source": "job", "phase": phase, "created_at": NOW - 60 * n, "started_at": NOW - 60 * n,
        "ended_at": NOW - 60 * n + 50, "parent": None, "deleted_at": None, "valid": True, "problems": "[]",
        "purpose": "a sentence that says why", "attempts": 1, "code_commit": f"{n:040x}", "code_branch": "main",
        "code_dirty": False, "code_tree": "", "doc": json.dumps(doc),
    }  # fmt: skip
    return [made]


def _params(n: int, chance: random.Random) -> list[dict[str, Any]]:
    numbers = [(f"p{i}", chance.random()) for i in range(PARAMS - 5)]
    texts = [(f"s{i}", chance.choice("abcde")) for i in range(5)]
    return [
        *({"run": _run_id(n), "key": key, "value": repr(v), "number": v, "attempt": 1} for key, v in numbers),
        *({"run": _run_id(n), "key": key, "value": v, "number": None, "attempt": 1} for key, v in texts),
    ]


def _tags(n: int, chance: random.Random) -> list[dict[str, Any]]:
    return [{"run": _run_id(n), "key": f"t{i}", "value": f"v{chance.randrange(10)}"} for i in range(TAGS)]


def _metrics(n: int, chance: random.Random) -> list[dict[str, Any]]:
    common = {"run": _run_id(n), "rank": 0, "points": 1000, "nans": 0, "last_nan": False, "last_step": 1000}
    steps = {"last_time": NOW, "last_attempt": 1, "low_step": 900, "high_step": 1}
    values = [chance.random() for _ in range(METRICS)]
    return [{**common, **steps, "name": f"m{i}", "last": v, "low": v / 2, "high": 2 * v} for i, v in enumerate(values)]


_ROWS: dict[Any, Callable[[int, random.Random], list[dict[str, Any]]]] = {
    tables.runs: _run,
    tables.run_params: _params,
    tables.run_tags: _tags,
    tables.metric_series: _metrics,
}

if __name__ == "__main__":
    main()
