"""Commands to a launcher: stop with grace, kill, save; the time limit; a machine that shuts down."""

from __future__ import annotations

import os
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ingest_kit import PATIENCE, wait_for
from launcher_kit import LauncherFixture, launcher_fixture, order, read_exit
from muster import wire
from muster.runtime import processes
from muster.runtime.ending import failing, forcing, stopping

# A rank that polls, saves when asked and leaves when told.
POLLING = f"""exec {sys.executable} -c '
import signal, time
from muster import runtime
signal.signal(signal.SIGTERM, lambda *_: print("term"))
runtime.should_save()
print("up")
while not runtime.should_stop():
    if runtime.should_save():
        print("save")
    time.sleep(0.005)
print("leaving")
'"""
# A plain program that will not go.
STUBBORN = "trap 'echo term' TERM; echo up; while :; do sleep 0.05; done"


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[LauncherFixture]:
    with launcher_fixture(tmp_path) as made:
        yield made


def start(shop: LauncherFixture, run: str, **changes: object) -> tuple[Path, subprocess.Popen[bytes]]:
    """A worker whose ranks are all up."""
    folder = shop.folder(run, **changes)
    launcher = shop.start(folder)
    ranks = wire.Launch.from_json((folder / "launch.json").read_text()).nproc
    wait_for(lambda: all("up\n" in shop.server.log(rank) for rank in range(ranks)), "the start of the ranks")
    return folder, launcher


def test_a_rank_that_polls_leaves_by_itself_without_a_signal(shop: LauncherFixture) -> None:
    folder, launcher = start(shop, POLLING)
    before = time.time()
    order(folder, launcher.pid, wire.Command(1, "stop", "preempted", grace=100.0))
    assert launcher.wait(PATIENCE) == 0
    ended = shop.ended(folder)
    assert (ended.outcome, ended.reason) == ("stopped", "preempted")
    assert [(r.exit_code, r.signal) for r in ended.ranks] == [(0, None)]
    assert shop.server.log() == "up\nleaving\n"
    (deadline,) = struct.unpack_from("<d", (folder / "control").read_bytes(), wire.CONTROL_DEADLINE_AT)
    assert before + 99.0 < deadline < time.time() + 100.0
    assert '"preempted"' in (folder / "command.json").read_text()


def test_a_plain_program_hears_sigterm_at_once_and_sigkill_at_the_end(shop: LauncherFixture) -> None:
    folder, launcher = start(shop, STUBBORN)
    order(folder, launcher.pid, wire.Command(1, "stop", "user_stop", grace=1.0))
    assert launcher.wait(PATIENCE) == 0
    ended = shop.ended(folder)
    assert (ended.outcome, ended.reason, ended.ranks[0].signal) == ("stopped", "user_stop", signal.SIGKILL)
    assert "ended by SIGKILL: rank 0" in ended.detail
    assert "\nterm\n" in shop.server.log()
    assert not shop.left()


def test_a_plain_program_that_obeys_sigterm_is_not_waited_for(shop: LauncherFixture) -> None:
    folder, launcher = start(shop, "echo up; exec sleep 600")
    order(folder, launcher.pid, wire.Command(1, "stop", "user_stop", grace=500.0))
    assert launcher.wait(PATIENCE) == 0
    ended = shop.ended(folder)
    assert (ended.outcome, ended.ranks[0].signal) == ("stopped", signal.SIGTERM)


def test_a_program_that_saves_on_sigterm_has_its_grace_though_its_shell_is_gone(shop: LauncherFixture) -> None:
    saving = (
        "trap 'until [ -e go ]; do sleep 0.02; done; echo saved; exit 0' TERM; echo up; while :; do sleep 0.02; done"
    )
    folder, launcher = start(shop, f'bash -c "{saving}"; echo never')
    shell = next(p for p in processes.descendants(launcher.pid) if processes.stat(p).parent == launcher.pid)
    order(folder, launcher.pid, wire.Command(1, "stop", "preempted", grace=500.0))
    wait_for(lambda: processes.stat(shell) is None)
    (shop.root / "work" / "go").touch()
    assert launcher.wait(PATIENCE) == 0
    ended = shop.ended(folder)
    assert (ended.outcome, ended.ranks[0].signal) == ("stopped", signal.SIGTERM)
    assert shop.server.log().endswith("saved\n")
    assert not shop.left()


def test_kill_cuts_a_long_grace_short_and_the_first_reason_stands(shop: LauncherFixture) -> None:
    folder, launcher = start(shop, STUBBORN)
    order(folder, launcher.pid, wire.Command(1, "stop", "preempted", grace=500.0))
    wait_for(lambda: "term" in shop.server.log())
    order(folder, launcher.pid, wire.Command(2, "kill", "user_stop"))
    assert launcher.wait(PATIENCE) == 0
    assert (shop.ended(folder).outcome, shop.ended(folder).reason) == ("stopped", "preempted")


def test_commands_in_replies_are_obeyed_once_and_acknowledged(shop: LauncherFixture) -> None:
    # The second rank talks all the time, so that there are many replies.
    folder, launcher = start(shop, f"[ $RANK = 0 ] || while :; do echo up; sleep 0.02; done; {POLLING}", nproc=2)
    shop.server.commands["token"] = wire.Command(7, "save")
    wait_for(lambda: shop.server.log() == "up\nsave\n")
    wait_for(lambda: shop.server.attempt().command_seen == 7)
    told = shop.server.requests
    wait_for(lambda: shop.server.requests > told + 5)  # the same command came again and again
    shop.server.commands["token"] = wire.Command(8, "save")
    wait_for(lambda: shop.server.log() == "up\nsave\nsave\n")
    shop.server.commands["token"] = wire.Command(9, "stop", "user_stop", grace=60.0)
    assert launcher.wait(PATIENCE) == 0
    assert shop.ended(folder).reason == "user_stop"
    assert shop.server.log() == "up\nsave\nsave\nleaving\n"


def test_the_time_limit_stops_like_a_command(shop: LauncherFixture) -> None:
    ended = shop.run(shop.folder(STUBBORN, max_duration=0.3, stop_grace=0.3))
    assert (ended.outcome, ended.reason) == ("stopped", "max_duration")
    assert "0.3 s" in ended.detail
    assert not shop.left()


def test_a_machine_that_shuts_down_costs_the_worker_not_the_user(shop: LauncherFixture) -> None:
    folder, launcher = start(shop, POLLING)
    launcher.send_signal(signal.SIGTERM)
    assert launcher.wait(PATIENCE) == 0
    ended = read_exit(folder)
    assert ended is not None
    assert (ended.outcome, ended.reason) == ("failed", "node_lost")
    assert "leaving" in (folder / "rank-0" / "log.0").read_text()


def test_a_stop_that_comes_before_the_ranks_keeps_them_from_starting(shop: LauncherFixture) -> None:
    folder = shop.folder("touch started")
    (folder / "inbox.json").write_text('{"id": 1, "kind": "stop", "reason": "user_stop", "grace": 5.0}')
    ended = shop.run(folder)
    assert (ended.outcome, ended.reason, ended.ranks) == ("stopped", "user_stop", ())
    assert not (shop.root / "work" / "started").exists()


def test_a_stop_reaches_a_launcher_that_waits_for_its_secrets(shop: LauncherFixture) -> None:
    shop.server.go_away()
    folder = shop.folder("touch started", secrets=("KEY",))
    launcher = shop.start(folder)
    wait_for((folder / "launcher.json").exists)
    order(folder, launcher.pid, wire.Command(1, "stop", "user_stop", grace=5.0))
    ended = wait_for(lambda: read_exit(folder))
    assert (ended.outcome, ended.reason) == ("stopped", "user_stop")
    assert not (shop.root / "work" / "started").exists()


def test_a_server_that_wants_the_attempt_no_more_ends_it(shop: LauncherFixture) -> None:
    folder, launcher = start(shop, "echo up; exec sleep 600")
    shop.server.fault = lambda batch: 410
    assert launcher.wait(PATIENCE) == 0
    ended = read_exit(folder)
    assert ended is not None
    assert ended.outcome == "stopped"
    assert (folder / "done").exists()
    assert not shop.left()


def test_the_order_of_an_ending() -> None:
    asked = stopping(100.0, 10.0, ranks=[0, 1], reporting={1}, outcome="stopped", reason="user_stop", detail="")
    assert asked.due(100.0) == ([0], False)
    assert asked.next_at() == 108.0
    assert asked.due(107.9) == ([], False)
    assert asked.due(108.0) == ([1], False)
    assert asked.due(110.0) == ([], True)
    failed = failing(100.0, ranks=[0, 2], rank=1, oom_killed=False)
    assert failed.due(100.0) == ([0, 2], False)
    failed.hasten(forcing(101.0, "stopped", "user_stop", ""))
    assert failed.due(101.0) == ([], True)
    assert failed.reason == ""


def test_a_launcher_that_lingers_leaves_when_it_is_told_to_and_its_word_stays(shop: LauncherFixture) -> None:
    shop.server.go_away()
    folder = shop.folder("echo up")
    launcher = shop.start(folder)
    wait_for(lambda: read_exit(folder))
    os.kill(launcher.pid, signal.SIGTERM)
    assert launcher.wait(PATIENCE) == 0
    assert not (folder / "done").exists()
