"""The Alembic environment: one file for each step of the schema."""
