"""`muster up` and `muster down`: a server of one's own, started apart, found again, ended."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from live import LiveServer, call_muster, stop_everything, until
from muster.cli import check_server, daemon

MUSTER = [sys.executable, "-m", "muster"]
WAITS = "echo begun; while true; do sleep 0.05; done"


@pytest.fixture
def home(tmp_path, monkeypatch):
    folder = tmp_path / "home"
    monkeypatch.setenv("MUSTER_HOME", str(folder))
    yield folder
    server = daemon.find(folder)
    if server is not None:
        os.kill(server.pid, signal.SIGKILL)
        until(lambda: not server.alive(), "the server to be gone")
    stop_everything(LiveServer(folder))


def test_up_apart_is_ready_on_return_and_down_ends_it(home):
    first = call_muster("up", "-d", "--port", "0", "--nodes", "2", "--json")
    assert first.returncode == 0, first.stderr
    told = json.loads(first.stdout)
    assert told["started"] is True
    assert told["token_file"] == str(home / "token")
    assert (home / "token").read_text().strip() not in first.stdout + first.stderr + (home / "server.log").read_text()
    assert len(json.loads(call_muster("nodes", "--json").stdout)["nodes"]) == 2
    again = json.loads(call_muster("up", "-d", "--json").stdout)
    assert (again["started"], again["pid"], again["urls"]) == (False, told["pid"], told["urls"])
    refused = call_muster("up")
    assert refused.returncode == 1
    assert "runs already" in refused.stderr
    ended = call_muster("down", "--json")
    assert json.loads(ended.stdout) == {"stopped": True, "running": []}
    assert daemon.start_ticks(told["pid"]) is None
    assert call_muster("down").stderr == f"No server is running for {home}.\n"


UP = """
import sys
from muster.cli import daemon
from muster.cli.main import main
daemon.STALL_TIMEOUT, daemon.START_TIMEOUT, daemon.SAY_EVERY = map(float, sys.argv[2:])
sys.executable = sys.argv[1]
sys.exit(main(["up", "-d", "--port", "0"]))
"""


def slow_up(folder: Path, script: str, stall: float = 120, start: float = 1800, say: float = 30) -> tuple[int, str]:
    """`muster up -d` with these limits, of a server that runs this script first: the exit code and what it said."""
    python = folder / "python"
    python.write_text(f'#!/bin/sh\n{script}\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    words = [sys.executable, "-W", "ignore", "-c", UP, str(python), str(stall), str(start), str(say)]
    ended = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    return ended.returncode, " ".join(ended.stdout.split())


def kill_named(told: str) -> str:
    """Kills the process that the hint names, and returns its command."""
    (pid,) = map(int, re.findall(r"end it with `kill (\d+)`", told))
    command = Path(f"/proc/{pid}/cmdline").read_text()
    os.kill(pid, signal.SIGKILL)
    return command


def test_a_server_that_starts_slowly_is_waited_for(home, tmp_path):
    works = "for i in $(seq 20); do echo step $i; sleep 0.5; done"  # longer than it may do nothing
    code, told = slow_up(tmp_path, works, stall=8, say=2)
    server = daemon.find(home)
    assert server is not None, told
    assert code == 0
    assert told.count(f"The server (pid {server.pid}) is still starting after ") >= 3
    assert "Muster is up at" in told
    daemon.stop(server)


def test_a_server_that_does_nothing_is_given_up(home, tmp_path):
    code, told = slow_up(tmp_path, "exec sleep 765", stall=0.5)
    assert code == 1
    assert "and has done nothing for 0.5 s. It is left running: see" in told
    assert "765" in kill_named(told)


def test_a_server_that_is_never_ready_is_given_up_although_it_works(home, tmp_path):
    code, told = slow_up(tmp_path, "while :; do echo step; sleep 0.1; done", start=1)
    assert code == 1
    assert re.search(r"is not ready after \d+ s\. It is left running", told)
    kill_named(told)


def test_a_server_that_dies_while_it_starts_is_told_with_its_words(home, tmp_path):
    code, told = slow_up(tmp_path, "echo no memory; exit 3")
    assert code == 1
    assert "The server ended before it was ready. It said: no memory" in told


def test_the_address_of_the_database_is_on_no_command_line(home):
    told = json.loads(call_muster("up", "-d", "--port", "0", "--store", f"sqlite:///{home}/other.db", "--json").stdout)
    assert b"other.db" not in Path(f"/proc/{told['pid']}/cmdline").read_bytes()
    assert (home / "other.db").exists()
    assert call_muster("down").returncode == 0


@pytest.mark.usefixtures("without_torch")
def test_jobs_go_on_without_the_server_and_are_taken_up_by_the_next(home):
    call_muster("up", "-d", "--port", "0")
    job = json.loads(call_muster("run", "-d", "--json", "--name", "stays", "--", "bash", "-c", WAITS).stdout)["id"]
    until(lambda: "begun" in call_muster("logs", job).stdout, "the job to begin")
    ended = call_muster("down")
    assert f"{job} goes on" in ended.stderr
    assert "1 job(s) go on without a server" in call_muster("doctor").stdout
    assert call_muster("up", "-d", "--port", "0").returncode == 0
    shown = json.loads(call_muster("status", job, "--json").stdout)
    assert (shown["phase"], shown["attempt"]) == ("running", 1)
    down = call_muster("down", "--stop-jobs")
    assert f"{job} stopped" in down.stderr


def test_watching_goes_on_over_a_restart_of_the_server(home):
    call_muster("up", "-d", "--port", "0")
    script = "for i in 1 2 3 4 5 6; do echo line $i; until [ -e go$i ]; do sleep 0.02; done; done"
    folder = home.parent
    watching = subprocess.Popen(
        [*MUSTER, "run", "--", "bash", "-c", script],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    for number in (1, 2, 3):
        assert watching.stdout.readline() == f"line {number}\n"
        (folder / f"go{number}").touch()
    call_muster("down")
    (folder / "go4").touch()
    call_muster("up", "-d", "--port", "0")
    for number in (5, 6):
        (folder / f"go{number}").touch()
    out, err = watching.communicate(timeout=180)
    assert out == "line 4\nline 5\nline 6\n"
    assert "server away, retrying" in err
    assert "server is back" in err
    assert watching.returncode == 0


def test_watching_is_given_up_when_the_server_does_not_come_back(home, monkeypatch):
    call_muster("up", "-d", "--port", "0")
    monkeypatch.setenv("MUSTER_RETRY_FOR", "300ms")
    command = [*MUSTER, "run", "--name", "stays", "--", "bash", "-c", WAITS]
    watching = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert watching.stdout.readline() == "begun\n"
    os.kill(daemon.find(home).pid, signal.SIGKILL)
    _, err = watching.communicate(timeout=180)
    assert watching.returncode == 1
    assert "stays-1 goes on. Come back with `muster logs -f stays-1`." in err
    assert "No server answers at" in err
    assert "muster up -d" in err


def test_a_server_that_can_not_start_says_why(home):
    found = call_muster("up", "-d", "--host", "0.0.0.0")
    assert found.returncode == 1
    assert "The server ended before it was ready. It said:" in found.stderr
    assert "can be reached from other machines" in found.stderr
    assert str(home / "server.log") in found.stderr


def test_a_server_in_front_ends_with_ctrl_c(home):
    server = subprocess.Popen([*MUSTER, "up", "--port", "0"], stderr=subprocess.PIPE, text=True)
    try:
        assert f"Token: in {home / 'token'}" in server.stderr.readline()
        until(lambda: daemon.find(home), "the server's address")
        server.send_signal(signal.SIGINT)
        server.communicate(timeout=180)
    finally:
        server.kill()
    assert server.returncode == 0
    assert daemon.find(home) is None


# --- whose process ----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("ticks_off", [1, -1])
def test_a_process_that_took_over_the_id_is_not_the_server(tmp_path, ticks_off):
    home = tmp_path  # no fixture that ends what it finds there: it would find this process
    ours = daemon.start_ticks(os.getpid())
    record = {"urls": ["http://127.0.0.1:1"], "pid": os.getpid(), "start_ticks": ours + ticks_off}
    (home / "server.json").write_text(json.dumps(record))
    assert daemon.find(home) is None
    (home / "server.json").write_text(json.dumps({**record, "start_ticks": ours}))
    assert daemon.find(home) == daemon.Running(os.getpid(), ours, ("http://127.0.0.1:1",))


def test_a_process_of_this_boot_is_not_the_server_of_the_last(tmp_path):
    """A machine that boots in the same way every time gives a service the same id at the same tick."""
    record = {"urls": [], "pid": os.getpid(), "start_ticks": daemon.start_ticks(os.getpid()), "boot_id": "another"}
    (tmp_path / "server.json").write_text(json.dumps(record))
    assert daemon.find(tmp_path) is None
    launcher = tmp_path / "local" / "attempts" / "job-1" / "1" / "0" / "launcher.json"
    launcher.parent.mkdir(parents=True)
    launcher.write_text(json.dumps(record))
    assert list(check_server.launchers(tmp_path)) == []


@pytest.mark.parametrize("text", ["", "{", "[]", '{"pid": 1}', '{"pid": "x", "start_ticks": 1, "urls": []}'])
def test_a_broken_address_file_is_no_server(tmp_path, text):
    (tmp_path / "server.json").write_text(text)
    assert daemon.find(tmp_path) is None
