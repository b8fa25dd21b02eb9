"""Here every new database is made by the migrations, as everywhere but in tests."""

from __future__ import annotations

import pytest

import schema_kit
from muster.store import migrate


@pytest.fixture(autouse=True)
def _migrations(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(migrate, "upgrade", schema_kit.real_upgrade)
