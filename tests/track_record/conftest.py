"""A record over a real store, on SQLite and on PostgreSQL, with a clock that the test moves."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import create_engine, text

from components import Postgres
from muster.store.registry import open_store
from muster.store.tables import metadata
from record_kit import Record, open_record


@pytest.fixture(scope="session")
def migrated_url(postgres_server: Postgres) -> Iterator[str]:
    """One database for all of these tests: bringing its schema up takes longer than most of them."""
    with postgres_server.database() as name:
        url = postgres_server.url(name)
        open_store(url).close()
        yield url


@pytest.fixture(params=["sqlite", "postgresql"])
def record(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Record]:
    if request.param == "sqlite":
        url = f"sqlite:///{tmp_path}/m.db"
    else:
        url = request.getfixturevalue("migrated_url")
        _empty(url)
    with open_record(url, tmp_path / "home") as found:
        yield found


@pytest.fixture
def light(tmp_path: Path) -> Iterator[Record]:
    """On SQLite alone, for what the database has no part in."""
    with open_record(f"sqlite:///{tmp_path}/m.db", tmp_path / "home") as found:
        yield found


def _empty(url: str) -> None:
    engine = create_engine(url.replace("postgresql://", "postgresql+psycopg://"))
    with engine.begin() as connection:
        names = ", ".join(f'"{name}"' for name in metadata.tables if name != "head")
        connection.execute(text(f"TRUNCATE {names} RESTART IDENTITY"))
        connection.execute(text("UPDATE head SET turn = 0, token = '', version = 0, time = 0"))
    engine.dispose()
