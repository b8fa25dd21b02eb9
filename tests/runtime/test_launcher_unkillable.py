"""A rank that survives SIGKILL, as in uninterruptible sleep: the worker ends without it, and says so."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ingest_kit import PATIENCE, wait_for
from launcher_kit import LauncherFixture, launcher_fixture, order
from muster import wire

# A launcher whose signals reach nobody. A process that the kernel does not let die can't be had at will.
DEAF = """
import sys
from pathlib import Path
from muster.runtime import launcher, processes, ranks, supervise
ranks.WorkerRanks.signal = lambda *_: None
processes.kill = lambda *_: None
supervise.UNKILLABLE = supervise.DRAIN = launcher.DRAIN = 0.3
sys.exit(launcher.run(Path(sys.argv[1])))
"""


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[LauncherFixture]:
    with launcher_fixture(tmp_path) as made:
        yield made


def test_a_rank_that_cannot_be_killed_is_given_up_and_named(shop: LauncherFixture) -> None:
    folder = shop.folder("echo up; exec sleep 600")
    launcher = subprocess.Popen([sys.executable, "-c", DEAF, str(folder)])
    wait_for(lambda: "up\n" in shop.server.log(0), "the start of the rank")
    order(folder, launcher.pid, wire.Command(1, "stop", "hung", grace=0.1))
    assert launcher.wait(PATIENCE) == 0
    ended = shop.ended(folder)
    assert (ended.outcome, ended.reason) == ("stopped", "hung")
    assert "rank 0 can't be killed: process" in ended.detail
    assert ended.detail.endswith("is in state S")
