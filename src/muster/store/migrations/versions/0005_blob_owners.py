"""Owners of uploaded content, so that knowing a digest alone does not give access to content of others."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Existing content gets no owners: runs refer to it, and users that may see those runs may refer to it again."""
    op.create_table(
        "blob_owners",
        sa.Column("digest", sa.Text, primary_key=True),
        sa.Column("owner", sa.Text, primary_key=True),
        sa.Column("time", sa.Double, nullable=False),
        sqlite_with_rowid=False,
    )
