"""The Alembic environment: how the schema grew, one file a step."""
