"""A record to ask MLflow's calls of, on both databases; and one live server for what goes over HTTP."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import create_engine, text

from components import Postgres
from live import LiveServer, live_server
from mlflow_kit import Table, open_table
from muster.store.registry import open_store
from muster.store.tables import metadata


@pytest.fixture(scope="session")
def mlflow_url(postgres_server: Postgres) -> Iterator[str]:
    with postgres_server.database() as name:
        url = postgres_server.url(name)
        open_store(url).close()
        yield url


@pytest.fixture(params=["sqlite", "postgresql"])
def table(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Table]:
    url = f"sqlite:///{tmp_path}/m.db"
    if request.param == "postgresql":
        url = request.getfixturevalue("mlflow_url")
        _empty(url)
    with open_table(url, tmp_path / "home") as found:
        yield found


@pytest.fixture(scope="session")
def muster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    """Shared: MLflow's own server takes seconds to load."""
    with live_server(tmp_path_factory.mktemp("mlflow") / "home") as server:
        yield server


def _empty(url: str) -> None:
    engine = create_engine(url.replace("postgresql://", "postgresql+psycopg://"))
    with engine.begin() as connection:
        names = ", ".join(f'"{name}"' for name in metadata.tables if name != "head")
        connection.execute(text(f"TRUNCATE {names} RESTART IDENTITY"))
        connection.execute(text("UPDATE head SET turn = 0, token = '', version = 0, time = 0"))
    engine.dispose()
