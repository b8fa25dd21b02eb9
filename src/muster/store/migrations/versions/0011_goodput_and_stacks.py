"""What ranks did, by hour, the time that attempts held, by class and day, and the stacks of ranks."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "run_phases",
        sa.Column("run", sa.Text, primary_key=True),
        sa.Column("attempt", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("hour", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("entries", sa.Text, nullable=False),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "goodput",
        sa.Column("run", sa.Text, primary_key=True),
        sa.Column("attempt", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("day", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("project", sa.Text, nullable=False),
        sa.Column("queue", sa.Text, nullable=False),
        sa.Column("unit", sa.Text, nullable=False),
        sa.Column("units", sa.BigInteger, nullable=False),
        sa.Column("doc", sa.Text, nullable=False),
        sa.Column("stale", sa.Boolean, nullable=False),
    )
    op.create_index("goodput_by_day", "goodput", ["day", "project"])
    op.create_table(
        "goodput_nodes",
        sa.Column("run", sa.Text, primary_key=True),
        sa.Column("attempt", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("node", sa.Text, primary_key=True),
        sa.Column("units", sa.BigInteger, nullable=False),
    )
    op.create_index("goodput_nodes_by_node", "goodput_nodes", ["node", "run"])
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
