"""Signed statements of models and stored checkpoints, which are due for models that are there; stages of runs."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "statements",
        sa.Column("ref", sa.Text, primary_key=True),
        sa.Column("subjects", sa.Text, primary_key=True),
        sa.Column("run", sa.Text, nullable=False),
        sa.Column("digest", sa.Text, nullable=False),
        sa.Column("key", sa.Text, nullable=False),
        sa.Column("time", sa.Double, nullable=False),
    )
    op.create_index("statements_by_run", "statements", ["run"])
    op.create_table(
        "statements_due",
        sa.Column("ref", sa.Text, primary_key=True),
        sa.Column("run", sa.Text, nullable=False),
        sa.Column("time", sa.Double, nullable=False),
        sa.Column("due_at", sa.Double, nullable=False),
        sa.Column("tries", sa.Integer, nullable=False),
        sa.Column("problem", sa.Text, nullable=False),
    )
    op.create_index("statements_due_by_time", "statements_due", ["due_at"])
    op.execute(
        "INSERT INTO statements_due (ref, run, time, due_at, tries, problem) "
        "SELECT 'model:' || name || '/' || version, run, created_at, created_at, 0, '' FROM model_versions"
    )
    op.create_table(
        "run_stages",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer, "sqlite"), primary_key=True),
        sa.Column("time", sa.Double, nullable=False),
        sa.Column("actor", sa.Text, nullable=False),
        sa.Column("project", sa.Text, nullable=False),
        sa.Column("run", sa.Text, nullable=False),
        sa.Column("stage", sa.Text, nullable=False),
        sa.Column("action", sa.Text, nullable=False),
        sa.Column("job", sa.Text, nullable=False),
        sa.Column("doc", sa.Text, nullable=False),
        sqlite_autoincrement=True,
    )
    op.create_index("run_stages_by_run", "run_stages", ["run", "id"])
    op.create_index("run_stages_by_job", "run_stages", ["job"])
