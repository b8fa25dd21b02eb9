"""One server for these tests: its trials run beside each other."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from live import LiveServer, live_server


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    with live_server(tmp_path_factory.mktemp("studies"), "--cpus", "8") as server:
        yield server
