"""Roll-ups of use, and the columns and index for service levels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa
from alembic import op
from pydantic_core import from_json

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

_PAGE = 2_000  # jobs held in memory at a time
_CLASSES = {"eval": "evaluation", "sweep": "trial", "session": "session"}


def upgrade() -> None:
    op.create_table(
        "rollups",
        sa.Column("resolution", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("start", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("pool", sa.Text, primary_key=True),
        sa.Column("seq", sa.BigInteger, nullable=False),
        sa.Column("until", sa.BigInteger, nullable=False),
        sa.Column("data", sa.Text, nullable=False),
        sqlite_with_rowid=False,
    )
    op.add_column("jobs", sa.Column("started_at", sa.Double))
    op.add_column("jobs", sa.Column("work", sa.Text, nullable=False, server_default="single"))
    _fill()
    started = sa.text("started_at IS NOT NULL")
    columns = ["started_at", "submitted_at", "work", "priority", "queue", "project"]
    op.create_index("jobs_by_start", "jobs", columns, sqlite_where=started, postgresql_where=started)


def _fill() -> None:
    """Fills old jobs from their documents. Not with JSON functions in SQL: PostgreSQL's reject an escaped NUL."""
    connection, last = op.get_bind(), -1
    page = sa.text("SELECT number, kind, spec, doc FROM jobs WHERE number > :last ORDER BY number LIMIT :page")
    change = sa.text("UPDATE jobs SET started_at = :started_at, work = :work WHERE number = :number")
    while rows := connection.execute(page, {"last": last, "page": _PAGE}).all():
        connection.execute(change, [_columns(row) for row in rows])
        last = rows[-1][0]


def _columns(row: Sequence[Any]) -> dict[str, Any]:
    number, kind, spec, doc = row
    nodes = from_json(spec).get("num_nodes") or 1
    work = _CLASSES.get(kind) or ("distributed" if nodes > 1 else "single")
    return {"number": number, "started_at": from_json(doc).get("started_at"), "work": work}
