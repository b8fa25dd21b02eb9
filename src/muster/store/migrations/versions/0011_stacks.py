"""The stacks of a run's ranks."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "run_stacks",
        sa.Column("run", sa.Text, primary_key=True),
        sa.Column("id", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("rank", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("attempt", sa.Integer, nullable=False),
        sa.Column("time", sa.Double, nullable=False),
        sa.Column("world", sa.Integer, nullable=False),
        sa.Column("doc", sa.Text, nullable=False),
    )
