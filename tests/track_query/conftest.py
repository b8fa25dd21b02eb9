"""A book on each database."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from ask_kit import open_record_db

from muster.track.record_db import RecordDb


@pytest.fixture(params=["sqlite", "postgresql"])
def db(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[RecordDb]:
    url = f"sqlite:///{tmp_path}/m.db" if request.param == "sqlite" else request.getfixturevalue("tables_url")
    with open_record_db(url) as made:
        yield made
