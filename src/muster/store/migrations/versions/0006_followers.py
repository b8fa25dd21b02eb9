"""Marks of the followers of the log, outgoing messages, and what could not be written into the record."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from muster.store.tables import RowId

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "follower_marks",
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("seq", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "set_aside",
        sa.Column("id", RowId, primary_key=True),
        sa.Column("time", sa.Double, nullable=False),
        sa.Column("source", sa.Text, nullable=False),
        sa.Column("run", sa.Text, nullable=False),
        sa.Column("attempt", sa.Integer, nullable=False),
        sa.Column("error", sa.Text, nullable=False),
        sa.Column("data", sa.LargeBinary, nullable=False),
    )
    op.create_table(
        "outbox",
        sa.Column("id", RowId, primary_key=True),
        sa.Column("made_at", sa.Double, nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("doc", sa.Text, nullable=False),
        sa.Column("due_at", sa.Double, nullable=False),
        sa.Column("tries", sa.Integer, nullable=False),
        sa.Column("error", sa.Text, nullable=False),
        sa.Column("given_up_at", sa.Double),
        sqlite_autoincrement=True,
    )
    op.create_index("outbox_by_due", "outbox", ["due_at"])
    # Both followers had their own marks before: in a row of track_marks, and in every roll-up.
    op.execute("INSERT INTO follower_marks (name, seq) SELECT 'record', value FROM track_marks WHERE name = 'events'")
    op.execute("INSERT INTO follower_marks (name, seq) SELECT 'rollups', max(seq) FROM rollups HAVING count(*) > 0")
    op.drop_column("rollups", "seq")
    op.execute("DELETE FROM track_marks WHERE name = 'events'")
