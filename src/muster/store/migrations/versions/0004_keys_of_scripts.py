"""Keys of scripts outside of jobs: as digests in `track_marks`; the documents of runs had the keys before."""

from __future__ import annotations

import hashlib
import json

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

_runs = sa.table("runs", sa.column("id", sa.Text), sa.column("doc", sa.Text))
_marks = sa.table("track_marks", sa.column("name", sa.Text), sa.column("value", sa.BigInteger))


def upgrade() -> None:
    connection = op.get_bind()
    with_keys = sa.select(_runs).where(_runs.c.doc.contains('"external"'), _runs.c.doc.contains('"keys"'))
    for run, text in connection.execute(with_keys).all():
        doc = json.loads(text)
        external = doc.get("external")
        keys = external.pop("keys", None) if isinstance(external, dict) else None
        if not isinstance(keys, dict):
            continue
        external["attempts"] = max(keys.values(), default=1)
        digests = {hashlib.sha256(key.encode()).hexdigest(): attempt for key, attempt in keys.items()}
        rows = [{"name": f"opened:{run}/{digest}", "value": attempt} for digest, attempt in digests.items()]
        if rows:
            connection.execute(_marks.insert(), rows)
        connection.execute(_runs.update().where(_runs.c.id == run).values(doc=json.dumps(doc)))
