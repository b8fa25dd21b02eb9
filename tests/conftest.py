"""Fixtures that several folders share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import settings

from components import Postgres, postgres

# Tests assert no times: an example may take as long as a busy machine needs.
settings.register_profile("muster", deadline=None)
settings.load_profile("muster")


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[Postgres]:
    """One PostgreSQL for the whole session, started when a test first asks for it."""
    with postgres() as server:
        yield server


@pytest.fixture
def postgres_url(postgres_server: Postgres) -> Iterator[str]:
    """A new, empty database."""
    with postgres_server.database() as name:
        yield postgres_server.url(name)
