"""A metric store on each of the two databases."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from metric_kit import Shop, shop


@pytest.fixture(params=["sqlite", "postgresql"])
def metric_shop(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Shop]:
    url = f"sqlite:///{tmp_path}/m.db" if request.param == "sqlite" else request.getfixturevalue("tables_url")
    with shop(url) as made:
        yield made


@pytest.fixture
def lite(tmp_path: Path) -> Iterator[Shop]:
    """SQLite alone, for what no database has a part in."""
    with shop(f"sqlite:///{tmp_path}/m.db") as made:
        yield made
