"""The cost ledger: its entries, and sums of them by day, by run, and by what the time went to."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None

_DIMENSIONS = (
    "project", "user", "queue", "kind", "family", "environment", "pool", "account", "price", "unit", "currency",
)  # fmt: skip
_SUMS = ("amount", "listed", "held", "unpriced")


def upgrade() -> None:
    op.create_table(
        "cost_charges",
        sa.Column("seq", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("part", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("run", sa.Text, nullable=False),
        sa.Column("attempt", sa.Integer, nullable=False),
        sa.Column("day", sa.Text, nullable=False),
        sa.Column("begin", sa.BigInteger, nullable=False),
        sa.Column("end", sa.BigInteger, nullable=False),
        *_columns(),
        sa.Column("rate", sa.BigInteger, nullable=False),
        sa.Column("book", sa.Integer, nullable=False),
        sa.Column("correction", sa.Boolean, nullable=False),
        sa.Column("cause", sa.Text, nullable=False),
    )
    op.create_index("cost_charges_by_run", "cost_charges", ["run", "attempt"])
    op.create_index("cost_charges_by_day", "cost_charges", ["day", "project"])
    op.create_table(
        "cost_days",
        sa.Column("day", sa.Text, primary_key=True),
        sa.Column("key", sa.Text, primary_key=True),
        *_columns(),
        sa.Column("charges", sa.BigInteger, nullable=False),
        sqlite_with_rowid=False,
    )
    op.create_index("cost_days_by_project", "cost_days", ["project", "day"])
    op.create_table(
        "cost_months",
        sa.Column("month", sa.Text, primary_key=True),
        sa.Column("key", sa.Text, primary_key=True),
        *_columns(),
        sa.Column("charges", sa.BigInteger, nullable=False),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "cost_runs",
        sa.Column("run", sa.Text, primary_key=True),
        sa.Column("currency", sa.Text, primary_key=True),
        sa.Column("project", sa.Text, nullable=False),
        sa.Column("user", sa.Text, nullable=False),
        sa.Column("family", sa.Text, nullable=False),
        sa.Column("day", sa.Text, nullable=False),
        *[sa.Column(name, sa.BigInteger, nullable=False) for name in _SUMS],
        sa.Column("platform", sa.BigInteger, nullable=False),
    )
    op.create_index("cost_runs_by_day", "cost_runs", ["day", "project"])
    for name, span in (("cost_classes", "day"), ("cost_class_months", "month")):
        op.create_table(
            name,
            *[
                sa.Column(part, sa.Text, primary_key=True)
                for part in (span, "project", "pool", "account", "currency", "class", "cause")
            ],
            sa.Column("amount", sa.BigInteger, nullable=False),
            sqlite_with_rowid=False,
        )


def _columns() -> list[sa.Column[str] | sa.Column[int]]:
    return [
        *[sa.Column(name, sa.Text, nullable=False) for name in _DIMENSIONS],
        *[sa.Column(name, sa.BigInteger, nullable=False) for name in _SUMS],
    ]
