"""Journals of Optuna: the operations on its studies in their order, and snapshots of what they add up to."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None


def upgrade() -> None:
    # With AUTOINCREMENT: the number of a deleted journal is not given to the next one.
    op.create_table(
        "optuna_journals",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer, "sqlite"), primary_key=True),
        sa.Column("project", sa.Text, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("user", sa.Text, nullable=False),
        sa.Column("created_at", sa.Double, nullable=False),
        sa.Column("updated_at", sa.Double, nullable=False),
        sa.Column("logs", sa.BigInteger, nullable=False),
        sa.Column("bytes", sa.BigInteger, nullable=False),
        sqlite_autoincrement=True,
    )
    op.create_index("optuna_journals_by_name", "optuna_journals", ["project", "name"], unique=True)
    op.create_table(
        "optuna_logs",
        sa.Column("journal", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("number", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("key", sa.Text),
        sa.Column("data", sa.Text, nullable=False),
        sqlite_with_rowid=False,
    )
    with_key = sa.text("key IS NOT NULL")
    op.create_index(
        "optuna_logs_by_key", "optuna_logs", ["journal", "key"], unique=True,
        sqlite_where=with_key, postgresql_where=with_key,
    )  # fmt: skip
    op.create_table(
        "optuna_snapshots",
        sa.Column("journal", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("format", sa.Text, primary_key=True),
        sa.Column("logs", sa.BigInteger, nullable=False),
        sa.Column("data", sa.LargeBinary, nullable=False),
    )
