"""Receivers of outgoing messages, so that each has its own turn."""

from __future__ import annotations

import json

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

_outbox = sa.table("outbox", sa.column("id", sa.BigInteger), sa.column("kind"), sa.column("doc"), sa.column("receiver"))


def upgrade() -> None:
    op.add_column("outbox", sa.Column("receiver", sa.Text, nullable=False, server_default=""))
    connection = op.get_bind()
    for identity, kind, doc in connection.execute(sa.select(_outbox.c.id, _outbox.c.kind, _outbox.c.doc)).all():
        receiver = f"{kind} {json.loads(doc).get('hook', '')}".strip()
        connection.execute(sa.update(_outbox).where(_outbox.c.id == identity).values(receiver=receiver))
    op.drop_index("outbox_by_due", "outbox")
    waiting, given_up = sa.text("given_up_at IS NULL"), sa.text("given_up_at IS NOT NULL")
    op.create_index("outbox_waiting", "outbox", ["receiver", "due_at"], sqlite_where=waiting, postgresql_where=waiting)
    op.create_index("outbox_given_up", "outbox", ["given_up_at"], sqlite_where=given_up, postgresql_where=given_up)
