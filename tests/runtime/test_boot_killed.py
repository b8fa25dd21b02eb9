"""`boot` and its launcher killed at any point: ranks start at most once, and what was written is told in the end."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from boot_kit import SLURM, GangFixture, gang_fixture

from ingest_kit import PATIENCE, wait_for
from muster.runtime import processes

COUNTED = "echo $RANK >> starts; echo output of $RANK"
BEFORE = ["after_owner", "after_rendezvous", "after_folder", "after_launch_json", "after_lock"]
BETWEEN = ["after_launcher_json", "after_first_rank", "before_exit_json"]
AFTER = ["after_exit_json", "boot_before_told", "boot_after_told", "after_discarding"]


@pytest.fixture
def made(tmp_path: Path) -> Iterator[GangFixture]:
    with gang_fixture(tmp_path) as found:
        yield found


@pytest.mark.parametrize("point", [*BEFORE, *BETWEEN, *AFTER])
def test_killed_at_any_point_and_started_again(made: GangFixture, point: str) -> None:
    made.gang(COUNTED, nproc=2)
    assert made.slurm(MUSTER_FAULT_LAUNCHER=point).wait(PATIENCE) in (-signal.SIGKILL, 1, 0)
    again = made.slurm().wait(PATIENCE)
    ended = made.worker_exit()
    assert made.server.attempt().exits[0] == ended
    assert len(made.starts()) == len(set(made.starts()))
    assert not made.shop.left()
    assert again == (0 if ended.reason == "completed" else 1)
    if point in BETWEEN:
        assert ended.reason == "launcher_lost"
    else:
        assert (ended.reason, made.starts()) == ("completed", ["0", "1"])
        assert [made.server.log(rank) for rank in (0, 1)] == ["output of 0\n", "output of 1\n"]
    assert not made.worker().exists()
    # And once more, though nothing of it is left on the node.
    starts, told = made.starts(), made.server.requests
    assert made.slurm().wait(PATIENCE) == again
    assert (made.starts(), made.server.requests) == (starts, told)


def test_a_killed_launcher_is_followed_by_one_that_tells_what_it_had_not(made: GangFixture) -> None:
    made.gang("(setsid sleep 641 & echo $! > daemon); seq 1000; echo up; sleep 642; true")
    boot = made.slurm()
    wait_for(lambda: "up\n" in made.server.log())
    made.server.go_away()
    daemon = int((made.work / "daemon").read_text())
    (launcher,) = [pid for pid in processes.descendants(boot.pid) if processes.stat(pid).parent == boot.pid]
    os.kill(launcher, signal.SIGKILL)
    ended = wait_for(made.worker_exit)
    assert (ended.outcome, ended.reason) == ("failed", "launcher_lost")
    wait_for(lambda: processes.stat(daemon) is None)
    made.server.come()
    assert boot.wait(PATIENCE) == 1
    assert made.server.attempt().exits[0] == ended
    assert made.server.log() == "".join(f"{n}\n" for n in range(1, 1001)) + "up\n"


@pytest.mark.parametrize("told", [False, True])
def test_a_frozen_launcher_is_continued_and_loses_nothing(made: GangFixture, told: bool) -> None:
    """After a while by itself, and at once when it has to leave."""
    run = f"from muster.runtime import boot, boot_supervise; boot_supervise.FROZEN = {600 if told else 0.5}"
    made.gang("echo up; until test -e go; do sleep 0.1; done; echo went on")
    python = (sys.executable, "-c", f"{run}; import sys; sys.exit(boot.main())")
    boot = made.boot("slurm", python=python, **SLURM, SLURM_PROCID="0")
    wait_for(lambda: "up\n" in made.server.log())
    (launcher,) = [pid for pid in processes.descendants(boot.pid) if processes.stat(pid).parent == boot.pid]
    os.kill(launcher, signal.SIGSTOP)
    wait_for(lambda: processes.stat(launcher).state == "T")
    if told:
        boot.send_signal(signal.SIGTERM)
        assert boot.wait(PATIENCE) == 1
        return
    (made.work / "go").touch()
    assert boot.wait(PATIENCE) == 0
    assert made.server.log() == "up\nwent on\n"


def test_killed_while_it_carries_off_what_no_server_took(made: GangFixture) -> None:
    made.gang(COUNTED, linger=0.1)
    made.server.go_away()
    assert made.slurm(MUSTER_FAULT_LAUNCHER="after_carrying").wait(PATIENCE) == -signal.SIGKILL
    assert made.worker().exists()
    assert not (made.folder / "worker-0").exists()
    assert made.slurm().wait(PATIENCE) == 0
    assert not made.worker().exists()
    made.server.come()
    assert made.boot("slurm", "--recover").wait(PATIENCE) == 0
    assert (made.starts(), made.server.log()) == (["0"], "output of 0\n")
    assert made.server.attempt().exits[0] == made.worker_exit()


def test_told_to_recover_it_starts_nothing(made: GangFixture) -> None:
    made.gang(COUNTED)
    assert made.slurm(0, "--recover").wait(PATIENCE) == 1
    assert (made.worker_exit().reason, made.starts()) == ("launcher_lost", [])
