"""A live server, found by whoever looks for it in the usual way, as Optuna's users would."""

from __future__ import annotations

from collections.abc import Iterator

import optuna
import pytest

from live import LiveServer, live_server

optuna.logging.set_verbosity(optuna.logging.WARNING)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    with live_server(tmp_path_factory.mktemp("optuna")) as found:
        yield found


@pytest.fixture(autouse=True)
def found(server: LiveServer, monkeypatch: pytest.MonkeyPatch) -> LiveServer:
    monkeypatch.setenv("MUSTER_HOME", str(server.home))
    for name in ("MUSTER_URL", "MUSTER_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    return server
