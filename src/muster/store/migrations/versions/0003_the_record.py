"""The tables of the record: runs, metrics, artifacts, lineage, the logbook and the registry."""

from __future__ import annotations

from alembic import op
from sqlalchemy import BigInteger, Boolean, Column, Double, Index, Integer, LargeBinary, MetaData, Table, Text, text

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

_metadata = MetaData()
_ROW_ID = BigInteger().with_variant(Integer, "sqlite")


def upgrade() -> None:
    _metadata.create_all(op.get_bind())


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
