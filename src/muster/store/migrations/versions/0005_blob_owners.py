"""Who uploaded content, so that a digest alone gives nobody what others have."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Of what is there nobody is noted: runs name it, and whoever may see them may name it again."""
    op.create_table(
        "blob_owners",
        sa.Column("digest", sa.Text, primary_key=True),
        sa.Column("owner", sa.Text, primary_key=True),
        sa.Column("time", sa.Double, nullable=False),
        sqlite_with_rowid=False,
    )
