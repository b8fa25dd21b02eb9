"""A launcher that dies, at any point: nothing runs on, nothing starts twice, nothing that was written is lost."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ingest_kit import PATIENCE, wait_for
from launcher_kit import LauncherFixture, launcher_fixture, read_exit
from muster.runtime import processes

POINTS = ["after_lock", "after_launcher_json", "after_first_rank", "before_exit_json", "after_exit_json"]
# Each start of a rank leaves one line, in one write.
COUNTED = "echo $RANK >> starts; echo output of $RANK"


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[LauncherFixture]:
    with launcher_fixture(tmp_path) as made:
        yield made


def starts(shop: LauncherFixture) -> list[str]:
    path = shop.root / "work" / "starts"
    return sorted(path.read_text().split()) if path.exists() else []


def test_recovery_kills_what_is_left_and_loses_nothing(shop: LauncherFixture) -> None:
    """The rank's shell dies with its launcher; its child and its daemon must be found."""
    daemon = "(setsid sleep 633 & echo $! > daemon); sleep 634 & echo $! > child"
    report = f"{sys.executable} -c 'from muster import runtime; runtime.report(step=1, loss=0.5); runtime.flush()'"
    folder = shop.folder(f"{daemon}; {report}; seq 1000; echo up; wait; true")
    launcher = shop.start(folder)
    wait_for(lambda: "up\n" in shop.server.log())
    shop.server.go_away()
    pids = [int((shop.root / "work" / name).read_text()) for name in ("daemon", "child")]
    os.kill(launcher.pid, signal.SIGKILL)
    launcher.wait()
    assert all(processes.stat(pid) for pid in pids)
    recovering = shop.start(folder, "--recover")
    ended = wait_for(lambda: read_exit(folder))
    wait_for(lambda: not any(processes.stat(pid) for pid in pids))
    assert (ended.outcome, ended.reason) == ("failed", "launcher_lost")
    shop.server.come()
    assert recovering.wait(PATIENCE) == 0
    assert shop.ended(folder) == ended
    assert shop.server.log() == "".join(f"{n}\n" for n in range(1, 1001)) + "up\n"
    assert len(shop.server.attempt().streams[0, "spool"]) > 0
    assert (folder / "done").exists()


@pytest.mark.parametrize("point", POINTS)
def test_a_launcher_killed_at_any_point_starts_its_ranks_at_most_once(shop: LauncherFixture, point: str) -> None:
    folder = shop.folder(COUNTED, nproc=2)
    assert shop.start(folder, MUSTER_FAULT_LAUNCHER=point).wait(PATIENCE) == -signal.SIGKILL
    ended = shop.run(folder)  # as a controller that knows no better would
    assert not shop.left()
    if point == "after_lock":
        assert ended.reason == "completed"
        assert starts(shop) == ["0", "1"]
    elif point == "after_exit_json":
        assert ended.reason == "completed"
        assert starts(shop) == ["0", "1"]
        assert [shop.server.log(rank) for rank in (0, 1)] == ["output of 0\n", "output of 1\n"]
    else:
        assert ended.reason == "launcher_lost"
        assert len(starts(shop)) == len(set(starts(shop)))
        if point == "before_exit_json":
            assert [shop.server.log(rank) for rank in (0, 1)] == ["output of 0\n", "output of 1\n"]


def test_a_recovering_launcher_that_dies_too_is_followed_by_another(shop: LauncherFixture) -> None:
    folder = shop.folder(COUNTED)
    assert shop.start(folder, MUSTER_FAULT_LAUNCHER="before_exit_json").wait(PATIENCE) == -signal.SIGKILL
    for point in POINTS[:1] + POINTS[3:]:
        assert shop.start(folder, "--recover", MUSTER_FAULT_LAUNCHER=point).wait(PATIENCE) == -signal.SIGKILL
    assert shop.run(folder, "--recover").reason == "launcher_lost"
    assert starts(shop) == ["0"]
    assert shop.server.log() == "output of 0\n"


def test_many_launchers_at_once_start_one_set_of_ranks(shop: LauncherFixture) -> None:
    folder = shop.folder(f"{COUNTED}; until [ -e go ]; do sleep 0.02; done", nproc=2)
    launchers = [shop.start(folder) for _ in range(6)]
    wait_for(lambda: sum(launcher.poll() == 0 for launcher in launchers) == 5)
    wait_for(lambda: shop.server.log(0) and shop.server.log(1))
    assert starts(shop) == ["0", "1"]
    (shop.root / "work" / "go").touch()
    assert [launcher.wait(PATIENCE) for launcher in launchers] == [0] * 6
    assert shop.ended(folder).reason == "completed"


def test_a_finished_folder_is_left_alone(shop: LauncherFixture) -> None:
    folder = shop.folder(COUNTED)
    shop.run(folder)
    told = shop.server.requests
    for options in ([], ["--recover"]):
        assert shop.start(folder, *options).wait(PATIENCE) == 0
    assert (starts(shop), shop.server.requests) == (["0"], told)


def test_a_folder_without_sense_is_refused_with_a_word(tmp_path: Path) -> None:
    (tmp_path / "launch.json").write_text("{}")
    command = [sys.executable, "-m", "muster.runtime.launcher", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.returncode == 2
    assert "launch.json can't be read" in done.stderr
    assert not (tmp_path / "launcher.json").exists()


def test_the_ranks_shell_dies_with_the_launcher_before_any_recovery(shop: LauncherFixture) -> None:
    folder = shop.folder("echo $$; exec sleep 635")
    launcher = shop.start(folder)
    wait_for(lambda: shop.server.log())
    os.kill(launcher.pid, signal.SIGKILL)
    launcher.wait()
    wait_for(lambda: processes.stat(int(shop.server.log())) is None)
