"""A record over a real store, on SQLite and on PostgreSQL, with a clock that the test moves."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from record_kit import Record, open_record


@pytest.fixture(params=["sqlite", "postgresql"])
def record(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Record]:
    url = f"sqlite:///{tmp_path}/m.db" if request.param == "sqlite" else request.getfixturevalue("tables_url")
    with open_record(url, tmp_path / "home") as found:
        yield found


@pytest.fixture
def light(tmp_path: Path) -> Iterator[Record]:
    """On SQLite alone, for what the database has no part in."""
    with open_record(f"sqlite:///{tmp_path}/m.db", tmp_path / "home") as found:
        yield found
