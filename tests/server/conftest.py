"""One real server for the tests of this folder; each test uses jobs and names of its own."""

from __future__ import annotations

import pytest

from live import live_server


@pytest.fixture(scope="session")
def server(tmp_path_factory):
    config = "nodes = 2\naccelerators = 'H100:4'\ncpus = 64\n"
    with live_server(tmp_path_factory.mktemp("home"), config=config) as made:
        yield made
