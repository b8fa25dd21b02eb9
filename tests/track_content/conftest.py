"""A record with content, on SQLite, and on PostgreSQL too where the statements may differ; one server for all."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from content_kit import Content, content, local

from live import LiveServer, live_server


@pytest.fixture
def kept(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Content]:
    """`@both` runs the test on PostgreSQL as well."""
    kind = getattr(request, "param", "sqlite")
    url = f"sqlite:///{tmp_path}/m.db" if kind == "sqlite" else request.getfixturevalue("tables_url")
    with content(url, local(tmp_path)) as made:
        yield made


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    with live_server(tmp_path_factory.mktemp("home")) as made:
        yield made
