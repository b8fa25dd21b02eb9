"""A metric store on each of the two databases."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from metric_kit import MetricStore, metric_store


@pytest.fixture(params=["sqlite", "postgresql"])
def metric_shop(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[MetricStore]:
    url = f"sqlite:///{tmp_path}/m.db" if request.param == "sqlite" else request.getfixturevalue("tables_url")
    with metric_store(url) as made:
        yield made


@pytest.fixture
def lite(tmp_path: Path) -> Iterator[MetricStore]:
    """SQLite alone, for what no database has a part in."""
    with metric_store(f"sqlite:///{tmp_path}/m.db") as made:
        yield made
