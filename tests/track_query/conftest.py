"""A book on each database."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from ask_kit import open_book

from muster.track.book import Book


@pytest.fixture(params=["sqlite", "postgresql"])
def book(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Book]:
    url = f"sqlite:///{tmp_path}/m.db" if request.param == "sqlite" else request.getfixturevalue("tables_url")
    with open_book(url) as made:
        yield made
