"""Runs written straight into the tables of the record, on either database, for tests of the questions asked of them."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Connection, Table

from muster.store import record_tables as tables
from muster.store.commit import GroupCommit
from muster.store.registry import open_store
from muster.track.record_db import RecordDb

NOW = 1_780_000_000.0  # 2026-05-28T20:26:40Z
DAY = 86_400.0


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


def write_runs(db: RecordDb, *runs: dict[str, Any]) -> None:
    """Each: `id`, what differs from a plain run; params, tags, metrics {name: last or summary}, data, notes, doc."""
    rows: dict[Table, list[dict[str, Any]]] = {}
    for run in runs:
        for table, row in _rows(run):
            rows.setdefault(table, []).append(row)

    def record(connection: Connection) -> None:
        for table, values in rows.items():
            connection.execute(table.insert(), values)

    db.write(record)


def _rows(run: dict[str, Any]) -> Iterator[tuple[Table, dict[str, Any]]]:
    own = {key: value for key, value in run.items() if key in tables.runs.c and key != "doc"}
    plain = {
        "project": "default", "experiment": 0, "name": run["id"].rpartition("-")[0] or run["id"], "user": "ada",
        "kind": "train", "source": "job", "phase": "succeeded", "created_at": NOW - DAY, "started_at": NOW - DAY + 60,
        "ended_at": NOW - DAY + 3660, "parent": None, "deleted_at": None, "valid": True, "problems": "[]",
        "purpose": "", "attempts": 1, "code_commit": "", "code_branch": "", "code_dirty": False, "code_tree": "",
    }  # fmt: skip
    yield tables.runs, {**plain, **own, "doc": json.dumps(run.get("doc", {}))}
    for key, value in run.get("params", {}).items():
        number = _number(str(value))
        yield tables.run_params, {"run": run["id"], "key": key, "value": str(value), "number": number, "attempt": 1}
    for key, value in run.get("tags", {}).items():
        yield tables.run_tags, {"run": run["id"], "key": key, "value": value}
    for name, given in run.get("metrics", {}).items():
        yield tables.metric_series, series_row(run["id"], name, given)
    for name in run.get("data", ()):
        link = {"source": f"data:{name}", "target": f"run:{run['id']}", "role": "reads"}
        yield tables.links, {**link, "time": NOW, "doc": "{}"}
    for text in run.get("notes", ()):
        note = {"project": plain["project"], "run": run["id"], "time": NOW, "author": "ada", "kind": "note"}
        yield tables.notes, {**note, "text": text, "doc": "{}", "mark": None}


def series_row(run: str, name: str, given: float | dict[str, Any]) -> dict[str, Any]:
    summary = given if isinstance(given, dict) else {"last": given}
    last = summary["last"]
    nan = math.isnan(last)
    low = None if nan else last
    row = {
        "run": run, "name": name, "rank": 0, "points": 10, "nans": int(nan), "last": low, "last_nan": nan,
        "last_step": 100, "last_time": NOW, "last_attempt": 1, "low": low, "low_step": 100, "high": low,
        "high_step": 100,
    }  # fmt: skip
    return row | {key: value for key, value in summary.items() if key != "last"}


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None
