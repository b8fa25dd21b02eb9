"""A launcher whose place on the node is another process's: with that process go the ranks."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from ingest_kit import PATIENCE, wait_for
from launcher_kit import LauncherFixture, launcher_fixture
from muster.runtime import processes
from muster.runtime.keeper import Keeper


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[LauncherFixture]:
    with launcher_fixture(tmp_path) as made:
        yield made


@pytest.fixture
def holder() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(["sleep", "643"])
    yield process
    process.kill()
    process.wait()


def identity(process: subprocess.Popen[bytes]) -> tuple[int, int]:
    found = processes.stat(process.pid)
    assert found is not None
    return process.pid, found.start_ticks


def test_the_ranks_end_with_their_keeper(shop: LauncherFixture, holder: subprocess.Popen[bytes]) -> None:
    folder = shop.folder(
        "trap 'echo term; exit 0' TERM; echo up; while :; do sleep 0.02; done", keeper=identity(holder)
    )
    launcher = shop.start(folder)
    wait_for(lambda: shop.server.log() == "up\n")
    holder.kill()
    assert launcher.wait(PATIENCE) == 0
    ended = shop.ended(folder)
    assert (ended.outcome, ended.reason) == ("failed", "node_lost")
    assert "held the worker's place" in ended.detail
    assert "term" in shop.server.log()
    assert not shop.left()


def test_the_keeper_of_a_worker_that_has_ended_is_nothing_to_it(
    shop: LauncherFixture, holder: subprocess.Popen[bytes]
) -> None:
    assert shop.run(shop.folder("echo hello", keeper=identity(holder))).reason == "completed"
    assert shop.server.log() == "hello\n"


def test_nothing_is_started_for_a_keeper_that_is_gone(shop: LauncherFixture, holder: subprocess.Popen[bytes]) -> None:
    pid, ticks = identity(holder)
    # The number lives, but as another process.
    ended = shop.run(shop.folder("touch started", keeper=(pid, ticks - 1)))
    assert (ended.outcome, ended.reason, ended.ranks) == ("failed", "node_lost", ())
    assert not (shop.root / "work" / "started").exists()


def test_a_keeper_that_goes_while_secrets_are_waited_for(
    shop: LauncherFixture, holder: subprocess.Popen[bytes]
) -> None:
    shop.server.secrets_status = 503
    folder = shop.folder("touch started", secrets=("KEY",), keeper=identity(holder))
    launcher = shop.start(folder)
    wait_for((folder / "launcher.json").exists)
    holder.kill()
    assert launcher.wait(PATIENCE) == 0
    assert shop.ended(folder).reason == "node_lost"
    assert not (shop.root / "work" / "started").exists()


def test_of_none_nothing_is_said() -> None:
    keeper = Keeper(None)
    keeper.open()
    assert (keeper.fd, keeper.gone()) == (-1, False)
