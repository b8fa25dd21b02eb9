"""Run by Alembic at every upgrade; uses the connection, and thus the transaction, of `store.migrate`."""

from __future__ import annotations

from alembic import context

from muster.store import cost_tables, record_tables  # noqa: F401  (they add their tables to those of `tables`)
from muster.store.tables import VERSION_TABLE, metadata

context.configure(
    connection=context.config.attributes["connection"], target_metadata=metadata, version_table=VERSION_TABLE
)
with context.begin_transaction():
    context.run_migrations()
