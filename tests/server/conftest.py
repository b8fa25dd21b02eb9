"""One real server for the tests of this folder; each test uses jobs and names of its own."""

from __future__ import annotations

import pytest
from live import live_server


@pytest.fixture(scope="session")
def server(tmp_path_factory):
    with live_server(tmp_path_factory.mktemp("home"), "--nodes", "2", "--accelerators", "H100:4", "--cpus", "64") as made:
        yield made
