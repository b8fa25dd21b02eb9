"""What the command's tests share: a real server for all of them, and the command itself in this process."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from live import LiveServer, live_server
from muster.cli.main import main


@dataclass
class Result:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The one document on stdout."""
        return json.loads(self.out)

    @property
    def lines(self) -> list[Any]:
        """One object a line."""
        return [json.loads(line) for line in self.out.splitlines()]


@pytest.fixture(scope="session")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    with live_server(tmp_path_factory.mktemp("home") / "muster") as server:
        yield server


@pytest.fixture(autouse=True)
def _surroundings(monkeypatch, tmp_path):
    """No server of the user's, a wide screen, and a folder of one's own."""
    for name in ("MUSTER_URL", "MUSTER_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("MUSTER_HOME", str(tmp_path / "no-server"))
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def muster(capsys):
    """Calls the command as a user without a server would."""

    def call(*words: str) -> Result:
        capsys.readouterr()
        code = main(words)
        captured = capsys.readouterr()
        return Result(code, captured.out, captured.err)

    return call


@pytest.fixture
def at_home(live, muster, monkeypatch):
    """Calls the command as a user of the live server would."""
    monkeypatch.setenv("MUSTER_HOME", str(live.home))
    return muster


@pytest.fixture
def without_torch(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The `python` of jobs has no packages: the doctor asks it for PyTorch, which takes seconds to load."""
    place = tmp_path / "bin" / "python"
    place.parent.mkdir()
    place.write_text(f'#!/bin/sh\nexec {sys.executable} -I -S "$@"\n')
    place.chmod(0o755)
    monkeypatch.setenv("PATH", f"{place.parent}{os.pathsep}{os.environ['PATH']}")
