"""The first tables."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

_ROW_ID = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def upgrade() -> None:
    _log()
    _folded()
    _streams()
    _rest()


def _log() -> None:
    head = op.create_table(
        "head",
        sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("turn", sa.BigInteger, nullable=False),
        sa.Column("token", sa.Text, nullable=False),
        sa.Column("version", sa.BigInteger, nullable=False),
        sa.Column("time", sa.Double, nullable=False),
    )
    op.bulk_insert(head, [{"id": 1, "turn": 0, "token": "", "version": 0, "time": 0.0}])
    op.create_table(
        "events",
        sa.Column("seq", _ROW_ID, primary_key=True, autoincrement=False),
        sa.Column("time", sa.Double, nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("actor", sa.Text, nullable=False),
        sa.Column("project", sa.Text, nullable=False),
        sa.Column("job", sa.Text, nullable=False),
        sa.Column("attempt", sa.Integer, nullable=False),
        sa.Column("data", sa.Text, nullable=False),
    )
    for name in ("job", "project", "actor", "kind"):
        op.create_index(f"events_by_{name}", "events", [name, "seq"])


def _folded() -> None:
    op.create_table(
        "jobs",
        sa.Column("number", _ROW_ID, primary_key=True, autoincrement=False),
        sa.Column("id", sa.Text, nullable=False),
        sa.Column("project", sa.Text, nullable=False),
        sa.Column("queue", sa.Text, nullable=False),
        sa.Column("user", sa.Text, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("phase", sa.Text, nullable=False),
        sa.Column("priority", sa.Integer, nullable=False),
        sa.Column("submitted_at", sa.Double, nullable=False),
        sa.Column("finished_at", sa.Double),
        sa.Column("key", sa.Text),
        sa.Column("spec", sa.Text, nullable=False),
        sa.Column("doc", sa.Text, nullable=False),
    )
    op.create_index("jobs_by_id", "jobs", ["id"], unique=True)
    for name in ("project", "user", "name", "phase"):
        op.create_index(f"jobs_by_{name}", "jobs", [name, "number"])
    keyed = sa.text("key IS NOT NULL")
    op.create_index("jobs_by_key", "jobs", ["user", "key"], sqlite_where=keyed, postgresql_where=keyed)
    op.create_table(
        "attempts",
        sa.Column("job", sa.Text, primary_key=True),
        sa.Column("number", sa.Integer, primary_key=True),
        sa.Column("doc", sa.Text, nullable=False),
    )
    op.create_table(
        "entities",
        sa.Column("kind", sa.Text, primary_key=True),
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("doc", sa.Text, nullable=False),
    )


def _streams() -> None:
    op.create_table(
        "streams",
        sa.Column("job", sa.Text, primary_key=True),
        sa.Column("attempt", sa.Integer, primary_key=True),
        sa.Column("rank", sa.Integer, primary_key=True),
        sa.Column("stream", sa.Text, primary_key=True),
        sa.Column("acked", sa.BigInteger, nullable=False),
        sa.Column("kept", sa.BigInteger, nullable=False),
        sa.Column("shapes", sa.Text, nullable=False),
    )
    op.create_table(
        "log_chunks",
        sa.Column("id", _ROW_ID, primary_key=True),
        sa.Column("job", sa.Text, nullable=False),
        sa.Column("attempt", sa.Integer, nullable=False),
        sa.Column("rank", sa.Integer, nullable=False),
        sa.Column("start", sa.BigInteger, nullable=False),
        sa.Column("length", sa.Integer, nullable=False),
        sa.Column("data", sa.LargeBinary, nullable=False),
        sqlite_autoincrement=True,
    )
    op.create_index("log_chunks_by_attempt", "log_chunks", ["job", "attempt", "id"])
    op.create_index("log_chunks_by_rank", "log_chunks", ["job", "attempt", "rank", "id"])
    op.create_table(
        "metric_chunks",
        sa.Column("id", _ROW_ID, primary_key=True),
        sa.Column("job", sa.Text, nullable=False),
        sa.Column("attempt", sa.Integer, nullable=False),
        sa.Column("rank", sa.Integer, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("step_min", sa.BigInteger, nullable=False),
        sa.Column("step_max", sa.BigInteger, nullable=False),
        sa.Column("n", sa.Integer, nullable=False),
        sa.Column("data", sa.LargeBinary, nullable=False),
        sqlite_autoincrement=True,
    )
    op.create_index("metric_chunks_by_name", "metric_chunks", ["job", "name", "id"])


def _rest() -> None:
    op.create_table(
        "run_values",
        sa.Column("job", sa.Text, primary_key=True),
        sa.Column("key", sa.Text, primary_key=True),
        sa.Column("value", sa.Text, nullable=False),
    )
    op.create_table(
        "secrets",
        sa.Column("project", sa.Text, primary_key=True),
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("cipher", sa.LargeBinary, nullable=False),
    )
    op.create_table(
        "lease",
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("holder", sa.Text, nullable=False),
        sa.Column("epoch", sa.BigInteger, nullable=False),
        sa.Column("beat", sa.BigInteger, nullable=False),
        sa.Column("urls", sa.Text, nullable=False),
    )
