"""The local engine beyond the contract: launchers that die, a machine that reboots, ports, devices, what is kept."""

from __future__ import annotations

import fcntl
import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from local_shop import Shop

from ingest_kit import ingest_server, wait_for
from muster import wire
from muster.core.errors import EngineError
from muster.engines.base import Seat, WorkerReport
from muster.engines.local import LocalEngine, describe_machine
from muster.runtime import processes

POINTS = ["after_lock", "after_launcher_json", "after_first_rank", "before_exit_json", "after_exit_json"]


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    with ingest_server() as server:
        made = Shop(tmp_path, server)
        try:
            yield made
        finally:
            made.close()


def ended(engine: LocalEngine) -> list[WorkerReport]:
    found = list(engine.poll())
    return found if found and all(report.status == "ended" for report in found) else []


def reason(engine: LocalEngine) -> str:
    (report,) = wait_for(lambda: ended(engine))
    assert report.exit is not None
    return report.exit.reason


def _alive(engine: LocalEngine) -> bool:
    """Looks without tending, which is what `poll` would do."""
    (worker,) = engine._workers["job-a", 1]
    worker.refresh()
    return worker.alive


def test_a_launcher_that_is_killed_is_recovered_and_its_orphans_are_gone_before_it_is_over(shop: Shop) -> None:
    with shop.engine() as engine:
        engine.launch(shop.gang("setsid sleep 641 & sleep 642 & echo up; wait"))
        wait_for(lambda: shop.server.log() == "up\n")
        launcher = shop.launcher()
        os.kill(launcher, signal.SIGKILL)
        seen: set[str] = set()
        (found,) = wait_for(lambda: seen.update(report.status for report in engine.poll()) or ended(engine))
        assert not shop.left()
        assert seen <= {"running", "ended"}
        assert found.exit is not None
        assert found.exit.reason == "launcher_lost"
        assert shop.launcher() != launcher
        wait_for(lambda: shop.server.attempt().exits)
        assert shop.starts() == 1


def test_a_launchers_death_wakes_the_controller(shop: Shop) -> None:
    woken: list[bool] = []
    with shop.engine() as engine:
        engine.on_change(lambda: woken.append(True))
        engine.launch(shop.gang("exec sleep 643"))
        wait_for(shop.starts)
        assert engine.poll()[0].status == "running"
        woken.clear()
        os.kill(shop.launcher(), signal.SIGKILL)
        wait_for(lambda: woken)
        assert reason(engine) == "launcher_lost"


@pytest.mark.parametrize("point", POINTS)
def test_no_fault_starts_the_ranks_twice(shop: Shop, point: str, monkeypatch: pytest.MonkeyPatch) -> None:
    gang = shop.gang("echo out", nproc=2)
    monkeypatch.setenv("MUSTER_FAULT_LAUNCHER", point)
    with shop.engine() as engine:
        engine.launch(gang)
        wait_for(lambda: not _alive(engine))
    monkeypatch.delenv("MUSTER_FAULT_LAUNCHER")
    with shop.engine() as engine:
        engine.launch(gang)
        (report,) = wait_for(lambda: ended(engine))
        engine.launch(gang)
        wait_for((shop.folder() / "done").exists)
        assert report.exit is not None
        told = shop.server.attempt().exits[0]
        assert told == report.exit
    assert told.reason == ("completed" if point in ("after_lock", "after_exit_json") else "launcher_lost")
    assert shop.starts() <= 2
    assert shop.starts() == 2 or told.reason == "launcher_lost"
    assert not shop.left()


def test_a_server_that_stays_starts_a_launcher_again_that_died_before_it_had_begun(shop: Shop) -> None:
    with shop.engine() as engine:
        gang = shop.gang("echo out")
        shop.folder().mkdir(parents=True)
        lock = os.open(shop.folder() / "lock", os.O_CREAT | os.O_RDWR)
        fcntl.flock(lock, fcntl.LOCK_EX)
        engine.launch(gang)  # its launcher finds the lock held, and leaves
        wait_for(lambda: engine.poll()[0].status == "starting")
        assert shop.starts() == 0
        os.close(lock)
        assert reason(engine) == "completed"
        assert shop.starts() == 1


def test_a_warm_process_that_died_is_replaced(shop: Shop) -> None:
    with shop.engine() as engine:
        process = engine._warm._process
        assert process is not None
        process.kill()
        process.wait()
        engine.launch(shop.gang("echo out"))
        assert reason(engine) == "completed"


def test_launchers_outlive_the_engine_and_the_warm_process(shop: Shop) -> None:
    with shop.engine() as engine:
        engine.launch(shop.gang("until [ -e go ]; do sleep 0.02; done; echo out"))
        wait_for(shop.starts)
    (shop.root / "go").touch()
    wait_for(lambda: shop.server.attempt().exits)
    assert shop.server.log() == "out\n"
    with shop.engine() as engine:
        assert reason(engine) == "completed"


def test_after_a_reboot_everything_that_ran_is_lost_and_then_told(shop: Shop) -> None:
    """A launcher's word from another boot, with the id of a process that lives now: this one."""
    with shop.engine() as engine:
        engine.launch(shop.gang("echo out; exec sleep 644"))
        wait_for(lambda: shop.server.log())
        launcher = shop.launcher()
    os.kill(launcher, signal.SIGKILL)
    wait_for(lambda: processes.stat(launcher) is None)
    ticks = processes.stat(os.getpid())
    assert ticks is not None
    identity = {"pid": os.getpid(), "start_ticks": ticks.start_ticks, "boot_id": "another"}
    (shop.folder() / "launcher.json").write_text(json.dumps(identity))
    with shop.engine() as engine:
        assert [worker.report().status for worker in engine._workers["job-a", 1]] == ["lost"]
        assert reason(engine) == "launcher_lost"


def test_a_process_id_that_passed_to_another_is_not_taken_for_the_launcher(shop: Shop) -> None:
    with shop.engine() as engine:
        engine.launch(shop.gang("exec sleep 645"))
        wait_for(shop.starts)
        launcher = shop.launcher()
    os.kill(launcher, signal.SIGKILL)
    identity = {
        "pid": os.getpid(),
        "start_ticks": 1,
        "boot_id": Path("/proc/sys/kernel/random/boot_id").read_text().strip(),
    }
    (shop.folder() / "launcher.json").write_text(json.dumps(identity))
    with shop.engine() as engine:
        engine.stop("job-a", 1, 0.0, "user_stop")  # must not signal this very process
        assert reason(engine) == "launcher_lost"


def test_forget_waits_until_the_server_has_everything_even_across_a_restart(shop: Shop) -> None:
    shop.server.go_away()
    with shop.engine() as engine:
        engine.launch(shop.gang("echo out"))
        assert reason(engine) == "completed"
        engine.forget("job-a", 1)
        assert engine.poll() == []
        assert shop.folder().exists()
    with shop.engine() as engine:
        assert engine.poll() == []
        shop.server.come()
        wait_for(lambda: engine.poll() == [] and not shop.attempts.joinpath("job-a").exists())
        assert shop.server.log() == "out\n"
        assert not list((shop.root / "engine" / "trash").iterdir())


def test_a_stop_for_a_worker_whose_launcher_never_came_ends_it(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MUSTER_FAULT_LAUNCHER", "after_lock")
    with shop.engine() as engine:
        engine.launch(shop.gang("echo out"))
    monkeypatch.delenv("MUSTER_FAULT_LAUNCHER")
    with shop.engine() as engine:
        assert [report.status for report in engine.poll()] == ["starting"]
        engine.stop("job-a", 1, 5.0, "user_stop")
        assert reason(engine) == "user_stop"
    assert shop.starts() == 0


def test_a_gang_shares_a_port_that_is_its_own_and_sees_only_its_devices(shop: Shop) -> None:
    show = "echo $MASTER_ADDR $MASTER_PORT $CUDA_VISIBLE_DEVICES"
    with shop.engine() as engine:
        seats = [Seat("local-0", (1,)), Seat("local-1", (0, 1))]
        for attempt in (1, 2):
            engine.launch(shop.gang(show, attempt=attempt, seats=seats, token=f"t{attempt}"))
        wait_for(lambda: len(ended(engine)) == 4)

        def logs() -> list[list[str]]:
            return [shop.server.log(rank, token).split() for token in ("t1", "t2") for rank in (0, 1)]

        wait_for(
            lambda: all(len(words) == 3 for words in logs())
        )  # a launcher ships what is left when its rank has ended
        seen = logs()
    assert [words[2] for words in seen] == ["1", "2,3"] * 2
    assert {words[0] for words in seen} == {"127.0.0.1"}
    ports = [words[1] for words in seen]
    assert ports[0] == ports[1] != ports[2] == ports[3]


@pytest.mark.parametrize("changes", [{"nodes": describe_machine(1, accelerators="H100:2")}, {"real_devices": False}])
def test_accelerators_that_are_not_real_leave_the_environment_alone(shop: Shop, changes: dict[str, Any]) -> None:
    with shop.engine(**changes) as engine:
        envs = {"CUDA_VISIBLE_DEVICES": "7"}
        engine.launch(shop.gang("echo $CUDA_VISIBLE_DEVICES", seats=[Seat("local-0", (0, 1))], envs=envs))
        assert reason(engine) == "completed"
    assert shop.server.log() == "7\n"


def test_what_a_launcher_is_told_is_for_its_owner_only(shop: Shop) -> None:
    with shop.engine() as engine:
        engine.launch(shop.gang("true"))
        assert reason(engine) == "completed"
    assert (shop.folder() / "launch.json").stat().st_mode & 0o777 == 0o600
    launch = wire.Launch.from_json((shop.folder() / "launch.json").read_text())
    assert Path(launch.checkpoint_dir) == shop.root / "engine" / "checkpoints" / "job-a"
    assert Path(launch.checkpoint_dir).is_dir()


@pytest.mark.parametrize("job", ["", "../up", "a/b", ".hidden"])
def test_a_job_id_that_is_no_folder_is_refused(shop: Shop, job: str) -> None:
    with shop.engine() as engine, pytest.raises(EngineError):
        engine.launch(shop.gang("true", job=job))
