"""A record to ask MLflow's calls of, on both databases; and one live server for what goes over HTTP."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from live import LiveServer, live_server
from mlflow_kit import MlflowFixture, open_mlflow


@pytest.fixture(params=["sqlite", "postgresql"])
def table(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[MlflowFixture]:
    url = f"sqlite:///{tmp_path}/m.db"
    if request.param == "postgresql":
        url = request.getfixturevalue("tables_url")
    with open_mlflow(url, tmp_path / "home") as found:
        yield found


@pytest.fixture(scope="session")
def muster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    """Shared: MLflow's own server takes a second to load, when MLflow is imported already."""
    with live_server(tmp_path_factory.mktemp("mlflow") / "home", load="mlflow_imports") as server:
        yield server
