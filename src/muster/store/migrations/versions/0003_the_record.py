"""The tables of the record: runs, metrics, artifacts, lineage, the logbook and the registry."""

from __future__ import annotations

import json
import math
import struct
import zlib
from array import array
from collections.abc import Iterator, Sequence
from typing import Any

import sqlalchemy as sa
from alembic import op
from sqlalchemy import BigInteger, Boolean, Column, Double, Index, Integer, LargeBinary, MetaData, Table, Text, text

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

_metadata = MetaData()
_ROW_ID = BigInteger().with_variant(Integer, "sqlite")


_POINT = 24  # bytes: step i64, time f64, value f64
_PAGE = 500  # old chunks held in memory at a time


def upgrade() -> None:
    _metadata.create_all(op.get_bind())
    if op.get_bind().dialect.name == "postgresql":
        # Muster compresses points where it pays: PostgreSQL's own attempt costs more than the rest of a write.
        for table, column in (("metric_tail", "data"), ("metric_blocks", "data"), ("metric_blocks", "buckets")):
            op.execute(f"ALTER TABLE {table} ALTER COLUMN {column} SET STORAGE EXTERNAL")
    _move_points()
    op.drop_table("metric_chunks")


def _move_points() -> None:
    """Converts chunks of one metric each into rows of the tail, and writes the summaries of their series."""
    connection, last = op.get_bind(), 0
    page = sa.text(
        "SELECT id, job, attempt, rank, name, n, data FROM metric_chunks WHERE id > :last ORDER BY id LIMIT :page"
    )
    tail = _metadata.tables["metric_tail"].insert()
    series: dict[tuple[str, str, int], dict[str, Any]] = {}
    first: dict[tuple[str, int], tuple[int, int]] = {}  # (run, attempt) → (writer, its lowest step)
    while rows := connection.execute(page, {"last": last, "page": _PAGE}).all():
        made = []
        for _, run, attempt, rank, name, points, data in rows:
            raw = data if len(data) == points * _POINT else zlib.decompress(data)
            made.append({"run": run, "attempt": attempt, "rank": rank, "points": points, "data": _row(name, raw)})
            steps = array("q", raw[: 8 * points])
            _sum_up(series.setdefault((run, name, rank), {}), attempt, _points(raw, points))
            writer, lowest = first.get((run, attempt), (rank, min(steps)))
            if rank <= writer:
                lowest = min(steps) if rank < writer else min(lowest, *steps)
                first[run, attempt] = (rank, lowest)
        connection.execute(tail, made)
        last = rows[-1][0]
    _insert(
        "metric_series", [{"run": run, "name": name, "rank": rank, **one} for (run, name, rank), one in series.items()]
    )
    attempts = [{"run": run, "attempt": number, "writer": rank, "first_step": step, "doc": "{}"}
                for (run, number), (rank, step) in first.items()]  # fmt: skip
    _insert("run_attempts", attempts)


def _row(name: str, raw: bytes) -> bytes:
    """One group of one name, in the format of `track.metrics.tail`; steps, times and values are not changed."""
    names = json.dumps([name], ensure_ascii=False).encode()
    head = struct.pack("<IIII", 1, len(raw) // _POINT, 1, len(names)) + names
    return head + b"\0" * (-len(head) % 8) + raw


def _points(raw: bytes, points: int) -> Iterator[tuple[int, float, float]]:
    parts = [array(kind, raw[8 * points * place : 8 * points * (place + 1)]) for place, kind in enumerate("qdd")]
    return zip(*parts, strict=True)


def _sum_up(one: dict[str, Any], attempt: int, points: Iterator[tuple[int, float, float]]) -> None:
    if not one:
        one.update(points=0, nans=0, last_attempt=-1, last_step=0, last_time=0.0)
        one.update(last=None, last_nan=False, low=None, low_step=None, high=None, high_step=None)
    for step, time, value in points:
        nan = math.isnan(value)
        one["points"] += 1
        one["nans"] += nan
        if (attempt, step, time) >= (one["last_attempt"], one["last_step"], one["last_time"]):
            one.update(last_attempt=attempt, last_step=step, last_time=time, last=None if nan else value, last_nan=nan)
        if not nan and (one["low"] is None or value < one["low"]):
            one.update(low=value, low_step=step)
        if not nan and (one["high"] is None or value > one["high"]):
            one.update(high=value, high_step=step)


def _insert(table: str, rows: Sequence[dict[str, Any]]) -> None:
    if rows:
        op.get_bind().execute(_metadata.tables[table].insert(), rows)


Table(
    "runs",
    _metadata,
    Column("id", Text, primary_key=True),
    Column("project", Text, nullable=False),
    Column("experiment", BigInteger, nullable=False),
    Column("name", Text, nullable=False),
    Column("user", Text, nullable=False),
    Column("kind", Text, nullable=False),
    Column("source", Text, nullable=False),
    Column("phase", Text, nullable=False),
    Column("created_at", Double, nullable=False),
    Column("started_at", Double),
    Column("ended_at", Double),
    Column("parent", Text),
    Column("deleted_at", Double),
    Column("valid", Boolean, nullable=False),
    Column("problems", Text, nullable=False),
    Column("purpose", Text, nullable=False),
    Column("attempts", Integer, nullable=False),
    Column("code_commit", Text, nullable=False),
    Column("code_branch", Text, nullable=False),
    Column("code_dirty", Boolean, nullable=False),
    Column("code_tree", Text, nullable=False),
    Column("doc", Text, nullable=False),
    Index("runs_by_project", "project", "created_at"),
    Index("runs_by_experiment", "experiment", "created_at"),
    Index("runs_by_created", "created_at"),
    Index("runs_by_user", "user", "created_at"),
    Index(
        "runs_by_parent", "parent", sqlite_where=text("parent IS NOT NULL"), postgresql_where=text("parent IS NOT NULL")
    ),
)

Table(
    "run_params",
    _metadata,
    Column("run", Text, primary_key=True),
    Column("key", Text, primary_key=True),
    Column("value", Text, nullable=False),
    Column("number", Double),
    Column("attempt", Integer, nullable=False),
    Index("run_params_by_key", "key", "number", "run"),
    sqlite_with_rowid=False,
)

Table(
    "run_tags",
    _metadata,
    Column("run", Text, primary_key=True),
    Column("key", Text, primary_key=True),
    Column("value", Text, nullable=False),
    Index("run_tags_by_key", "key", "run"),
    sqlite_with_rowid=False,
)

Table(
    "run_changes",
    _metadata,
    Column("id", _ROW_ID, primary_key=True),
    Column("run", Text, nullable=False),
    Column("time", Double, nullable=False),
    Column("actor", Text, nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("space", Text, nullable=False),
    Column("key", Text, nullable=False),
    Column("old", Text),
    Column("new", Text),
    Index("run_changes_by_run", "run", "id"),
    sqlite_autoincrement=True,
)

Table(
    "run_attempts",
    _metadata,
    Column("run", Text, primary_key=True),
    Column("attempt", Integer, primary_key=True),
    Column("first_step", BigInteger),
    Column("writer", Integer),
    Column("doc", Text, nullable=False),
)

Table(
    "metric_tail",
    _metadata,
    Column("id", _ROW_ID, primary_key=True),
    Column("run", Text, nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("rank", Integer, nullable=False),
    Column("points", Integer, nullable=False),
    Column("data", LargeBinary, nullable=False),
    Index("metric_tail_by_run", "run", "id"),
    sqlite_autoincrement=True,
)

Table(
    "metric_blocks",
    _metadata,
    Column("id", _ROW_ID, primary_key=True),
    Column("run", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("rank", Integer, nullable=False),
    Column("step_min", BigInteger, nullable=False),
    Column("step_max", BigInteger, nullable=False),
    Column("time_min", Double, nullable=False),
    Column("time_max", Double, nullable=False),
    Column("points", Integer, nullable=False),
    Column("buckets", LargeBinary, nullable=False),
    Column("data", LargeBinary, nullable=False),
    Index("metric_blocks_by_series", "run", "name", "rank", "attempt", "id"),
    Index(
        "metric_blocks_unfull",
        "run",
        sqlite_where=text("points < 16384"),
        postgresql_where=text("points < 16384"),
    ),
    sqlite_autoincrement=True,
)

Table(
    "metric_series",
    _metadata,
    Column("run", Text, primary_key=True),
    Column("name", Text, primary_key=True),
    Column("rank", Integer, primary_key=True, autoincrement=False),
    Column("points", BigInteger, nullable=False),
    Column("nans", BigInteger, nullable=False),
    Column("last", Double),
    Column("last_nan", Boolean, nullable=False),
    Column("last_step", BigInteger, nullable=False),
    Column("last_time", Double, nullable=False),
    Column("last_attempt", Integer, nullable=False),
    Column("low", Double),
    Column("low_step", BigInteger),
    Column("high", Double),
    Column("high_step", BigInteger),
    Index("metric_series_by_name", "name", "rank", "last", "run"),
    sqlite_with_rowid=False,
)

Table(
    "media",
    _metadata,
    Column("id", _ROW_ID, primary_key=True),
    Column("run", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("step", BigInteger, nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("rank", Integer, nullable=False),
    Column("time", Double, nullable=False),
    Column("kind", Text, nullable=False),
    Column("doc", Text, nullable=False),
    Index("media_by_run", "run", "name", "step"),
    sqlite_autoincrement=True,
)

Table(
    "blobs",
    _metadata,
    Column("digest", Text, primary_key=True),
    Column("bytes", BigInteger, nullable=False),
    Column("created_at", Double, nullable=False),
)

Table(
    "artifacts",
    _metadata,
    Column("run", Text, primary_key=True),
    Column("path", Text, primary_key=True),
    Column("digest", Text, nullable=False),
    Column("bytes", BigInteger, nullable=False),
    Column("kind", Text, nullable=False),
    Column("time", Double, nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("doc", Text, nullable=False),
    Index("artifacts_by_digest", "digest"),
)

Table(
    "checkpoints",
    _metadata,
    Column("run", Text, primary_key=True),
    Column("step", BigInteger, primary_key=True, autoincrement=False),
    Column("attempt", Integer, primary_key=True, autoincrement=False),
    Column("path", Text, nullable=False),
    Column("bytes", BigInteger, nullable=False),
    Column("time", Double, nullable=False),
    Column("doc", Text, nullable=False),
)

Table(
    "links",
    _metadata,
    Column("source", Text, primary_key=True),
    Column("target", Text, primary_key=True),
    Column("role", Text, primary_key=True),
    Column("time", Double, nullable=False),
    Column("doc", Text, nullable=False),
    Index("links_by_target", "target", "source"),
)

Table(
    "notes",
    _metadata,
    Column("id", _ROW_ID, primary_key=True),
    Column("project", Text, nullable=False),
    Column("run", Text, nullable=False),
    Column("time", Double, nullable=False),
    Column("author", Text, nullable=False),
    Column("kind", Text, nullable=False),
    Column("text", Text, nullable=False),
    Column("doc", Text, nullable=False),
    Column("mark", Text),
    Index("notes_by_run", "run", "id"),
    Index("notes_by_project", "project", "id"),
    Index(
        "notes_by_mark",
        "mark",
        unique=True,
        sqlite_where=text("mark IS NOT NULL"),
        postgresql_where=text("mark IS NOT NULL"),
    ),
    sqlite_autoincrement=True,
)

Table(
    "experiments",
    _metadata,
    Column("id", _ROW_ID, primary_key=True),
    Column("name", Text, nullable=False),
    Column("project", Text, nullable=False),
    Column("created_at", Double, nullable=False),
    Column("updated_at", Double, nullable=False),
    Column("deleted_at", Double),
    Column("artifacts", Text, nullable=False),
    Column("tags", Text, nullable=False),
    Index("experiments_by_name", "name", unique=True),
)

Table(
    "saved_queries",
    _metadata,
    Column("project", Text, primary_key=True),
    Column("user", Text, primary_key=True),
    Column("name", Text, primary_key=True),
    Column("time", Double, nullable=False),
    Column("doc", Text, nullable=False),
)

Table(
    "models",
    _metadata,
    Column("name", Text, primary_key=True),
    Column("project", Text, nullable=False),
    Column("created_at", Double, nullable=False),
    Column("updated_at", Double, nullable=False),
    Column("description", Text, nullable=False),
    Column("doc", Text, nullable=False),
)

Table(
    "model_versions",
    _metadata,
    Column("name", Text, primary_key=True),
    Column("version", Integer, primary_key=True, autoincrement=False),
    Column("run", Text, nullable=False),
    Column("source", Text, nullable=False),
    Column("stage", Text, nullable=False),
    Column("user", Text, nullable=False),
    Column("created_at", Double, nullable=False),
    Column("updated_at", Double, nullable=False),
    Column("description", Text, nullable=False),
    Column("doc", Text, nullable=False),
    Index("model_versions_by_run", "run"),
)

Table(
    "model_aliases",
    _metadata,
    Column("name", Text, primary_key=True),
    Column("alias", Text, primary_key=True),
    Column("version", Integer, nullable=False),
)

Table(
    "promotions",
    _metadata,
    Column("id", _ROW_ID, primary_key=True),
    Column("name", Text, nullable=False),
    Column("version", Integer, nullable=False),
    Column("time", Double, nullable=False),
    Column("actor", Text, nullable=False),
    Column("old", Text, nullable=False),
    Column("new", Text, nullable=False),
    Column("doc", Text, nullable=False),
    Index("promotions_by_version", "name", "version", "id"),
    sqlite_autoincrement=True,
)

Table(
    "track_marks",
    _metadata,
    Column("name", Text, primary_key=True),
    Column("value", BigInteger, nullable=False),
)
