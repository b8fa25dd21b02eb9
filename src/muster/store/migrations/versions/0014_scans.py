"""What scans found in content, as an artifact or as a file of code."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "scans",
        sa.Column("digest", sa.Text, primary_key=True),
        sa.Column("reading", sa.Text, primary_key=True),
        sa.Column("version", sa.Integer, nullable=False),
        sa.Column("findings", sa.Text, nullable=False),
        sa.Column("time", sa.Double, nullable=False),
        sqlite_with_rowid=False,
    )
