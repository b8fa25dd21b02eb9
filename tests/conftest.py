"""Fixtures that several folders share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from components import Postgres, postgres


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
