"""The version of the fold that the tables have, so that those of an older one are rebuilt from the log."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("head", sa.Column("fold", sa.Integer, nullable=False, server_default="1"))
