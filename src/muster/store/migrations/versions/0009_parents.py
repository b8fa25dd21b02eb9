"""The parent of a job, such as the sweep that it is a trial of."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("jobs", sa.Column("parent", sa.Text))
    with_parent = sa.text("parent IS NOT NULL")
    op.create_index(
        "jobs_by_parent", "jobs", ["parent", "number"], sqlite_where=with_parent, postgresql_where=with_parent
    )
