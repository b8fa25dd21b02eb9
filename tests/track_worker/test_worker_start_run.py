"""`muster.start_run`: the same calls in a job, beside a server, and without one; stored once, however a script ends."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from script_kit import SECONDS, SYNC, Record, UserMachine

from live import LiveServer, live_server, until
from muster.runtime import processes


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    with live_server(tmp_path_factory.mktemp("server") / "home") as started:
        yield started


@pytest.fixture
def record(server: LiveServer) -> Record:
    return Record(server.home)


@pytest.fixture
def machine(server: LiveServer, tmp_path: Path) -> Iterator[UserMachine]:
    made = UserMachine(server, tmp_path)
    yield made
    leave_nothing_running(tmp_path)


@pytest.fixture
def lonely(server: LiveServer, tmp_path: Path) -> Iterator[UserMachine]:
    """A desk whose server does not answer."""
    yield UserMachine(server, tmp_path, {"MUSTER_URL": "http://127.0.0.1:9", "MUSTER_TOKEN": server.token})
    leave_nothing_running(tmp_path)


def leave_nothing_running(home: Path) -> None:
    for pid in sidecars(home):
        os.kill(pid, signal.SIGKILL)


def sidecars(home: Path) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            words = processes.read(f"/proc/{entry.name}/cmdline").split(b"\0")
            if b"muster.runtime.sidecar" in words and any(str(home).encode() in word for word in words):
                found.append(int(entry.name))
    return found


# --- the contract of a tracker ----------------------------------------------------------------------------------------
CALLS = """
import muster
run = muster.start_run("contract", params={"lr": 3e-4, "model": {"layers": 2}}, tags={"task": "test"})
for step in range(200):
    run.log({"loss/train": 1 / (step + 1), "lr": 0.1}, step)
run.log({"last": float("nan")})
run.params(seed=7)
run.tags({"stage": "first"})
run.note("a note of the script")
run.data("c4-en", "v3", digest="abc")
with open("kept.txt", "w") as file:
    file.write("kept")
run.artifact("kept.txt", "out/kept.txt")
run.histogram("weights", 3, [1.0, 2.0, 3.0])
run.table("rows", 3, ["a"], [[1]])
run.text("sample", 3, "text")
run.image("picture", 3, memoryview(bytes(12)).cast("B", [2, 2, 3]))
run.close()
run.close()
print(run.run)
"""


def in_a_job(machine: UserMachine, tmp_path: Path) -> str:
    (tmp_path / "script.py").write_text(CALLS)
    job = machine.server.submit(f"{sys.executable} script.py", workdir=str(tmp_path))["id"]
    assert machine.server.wait(job)["phase"] == "succeeded"
    assert machine.server.output(job).strip() == job
    return str(job)


def beside_a_server(machine: UserMachine, tmp_path: Path) -> str:
    run, err = machine.run(CALLS)
    assert err == ""
    return run


def without_a_server(machine: UserMachine, tmp_path: Path) -> str:
    machine.env = {"MUSTER_URL": "http://127.0.0.1:9", "MUSTER_TOKEN": machine.server.token}
    run, err = machine.run(CALLS)
    assert "offline" in err
    assert err.count("\n") == 1
    until(lambda: (machine.waiting()[0].path / "environment").exists(), "the environment to be captured")
    leave_nothing_running(tmp_path)
    machine.env = {}
    assert [each["result"] for each in machine.sync()] == ["shipped"]
    assert machine.sync() == []
    return run


@pytest.mark.parametrize("tracked", [in_a_job, beside_a_server, without_a_server])
def test_what_a_tracker_took_is_stored_once(machine, record, tmp_path, tracked):
    run = tracked(machine, tmp_path)
    until(lambda: record.rows("artifacts", run) and len(record.rows("media", run)) == 4, "the files")
    found = record.ended(run)
    assert found["phase"] == "succeeded"
    points = record.points(run)
    assert (points["loss/train"], points["lr"], points["last"]) == (200, 200, 1)
    params = {row["key"]: row["value"] for row in record.rows("run_params", run)}
    assert {name: params[name] for name in ("lr", "model.layers", "seed")} == {
        "lr": "0.0003", "model.layers": "2", "seed": "7",
    }  # fmt: skip
    assert {"task": "test", "stage": "first"}.items() <= {
        row["key"]: row["value"] for row in record.rows("run_tags", run)
    }.items()
    assert [row["text"] for row in record.rows("notes", run) if row["kind"] == "note"] == ["a note of the script"]
    assert [row["path"] for row in record.rows("artifacts", run) if row["kind"] == "file"] == ["out/kept.txt"]
    assert sorted(row["kind"] for row in record.rows("media", run)) == ["histogram", "image", "table", "text"]
    assert [row["source"] for row in record.rows("links", f"run:{run}", "target")] == ["data:c4-en@v3"]
    until(lambda: (record.run(run) or {})["doc"].get("environment", {}).get("packages"), "the environment")


# --- how a script ends ------------------------------------------------------------------------------------------------
BEGIN = (
    # A shell that starts the tests in the background has them, and what they start, ignore Ctrl-C.
    "import muster, sys, os, time, signal\nsignal.signal(signal.SIGINT, signal.default_int_handler)\n"
    "run = muster.start_run('ends')\nprint(run.run, flush=True)\nrun.log({'x': 1.0}, 0)\n"
)


@pytest.mark.parametrize(
    ("rest", "code", "phase", "words"),
    [
        ("", 0, "succeeded", ""),
        ("sys.exit(0)", 0, "succeeded", ""),
        ("sys.exit(3)", 3, "failed", "exit 3"),
        ("raise ValueError('broken here')", 1, "failed", "ValueError: broken here"),
        ("with run: raise KeyError('inside')", 1, "failed", "KeyError: 'inside'"),
        ("run.close('stopped')", 0, "stopped", ""),
        ("os.kill(os.getpid(), 2); time.sleep(60)", -2, "stopped", "interrupted"),
        ("os.kill(os.getpid(), 9)", -9, "failed", "killed"),
    ],
)
def test_a_run_ends_as_its_script_does(machine, record, rest, code, phase, words):
    run, _ = machine.run(BEGIN + rest, code=code)
    found = record.ended(run)
    assert found["phase"] == phase
    assert words in found["doc"]["reason"]["message"]
    assert record.points(run)["x"] == 1
    until(lambda: not machine.waiting(), "the folder to go")


def test_a_forked_child_neither_writes_nor_ends_the_run(machine, record):
    fork = "if os.fork() == 0:\n    run.log({'x': 5.0}, 9)\n    sys.exit(4)\nos.wait()\nrun.log({'x': 2.0}, 1)"
    run, _ = machine.run(BEGIN + fork)
    assert record.ended(run)["phase"] == "succeeded"
    assert record.points(run)["x"] == 2


def test_hardware_is_sampled_beside_a_script(machine, record):
    with machine.start(BEGIN + "sys.stdin.read()") as script:
        assert script.stdout is not None
        run = script.stdout.readline().strip()
        until(lambda: "system/cpu" in record.points(run), "a sample")
        script.communicate(timeout=SECONDS)
    assert record.ended(run)["phase"] == "succeeded"


# --- no server, or not all the time -----------------------------------------------------------------------------------
def test_a_server_that_goes_and_comes_back_elsewhere_gets_everything(tmp_path):
    with live_server(tmp_path / "server") as server:
        machine, record = UserMachine(server, server.home, {"MUSTER_URL": ""}), Record(server.home)
        loop = "for line in sys.stdin:\n    for n in range(1000): run.log({'y': n}, n)\n    print('ok', flush=True)"
        with machine.start(BEGIN + loop) as script:
            assert script.stdin is not None
            assert script.stdout is not None
            run = script.stdout.readline().strip()
            until(lambda: "x" in record.points(run), "the first")
            server.stop()
            script.stdin.write("go\n")
            script.stdin.flush()
            assert script.stdout.readline() == "ok\n"
            server.start()  # on another port
            script.communicate(timeout=SECONDS)
        assert record.ended(run)["phase"] == "succeeded"
        assert record.points(run)["y"] == 1000
        leave_nothing_running(server.home)


def test_while_no_server_answers_sync_keeps_everything_and_says_why(lonely):
    run, _ = lonely.run(BEGIN)
    leave_nothing_running(lonely.home)
    for _ in range(2):
        (result,) = lonely.sync("--wait", "1s", code=1)
        assert (result["run"], result["result"]) == (run, "away")
        assert "127.0.0.1:9" in result["trouble"]
    assert len(lonely.waiting()) == 1


def test_the_next_script_ships_what_an_earlier_one_left(lonely, record):
    left, _ = lonely.run(BEGIN)
    leave_nothing_running(lonely.home)
    lonely.env = {}
    lonely.run(BEGIN)
    assert record.ended(left)["phase"] == "succeeded"
    until(lambda: not lonely.waiting(), "the folders to go")


def test_a_killed_script_whose_sidecar_was_killed_too_is_shipped_by_sync(machine, record):
    with machine.start(BEGIN + "sys.stdin.read()") as script:
        assert script.stdout is not None
        run = script.stdout.readline().strip()
        until(lambda: [each["result"] for each in machine.sync()] == ["busy"], "its sidecar to be at work")
        leave_nothing_running(machine.home)
        assert [each["result"] for each in machine.sync()] == ["running"]
        script.kill()
        script.communicate(timeout=SECONDS)
    assert [each["result"] for each in machine.sync()] == ["shipped"]
    found = record.ended(run)
    assert (found["phase"], record.points(run)["x"]) == ("failed", 1)


def test_sync_of_a_run_that_does_not_wait_is_told(machine):
    command = [*SYNC, "absent", "--json"]
    done = subprocess.run(
        command, env=machine.environment(), capture_output=True, text=True, timeout=SECONDS, check=False
    )
    assert done.returncode == 1
    assert "absent" in json.loads(done.stdout)["error"]["message"]


# --- who may write ----------------------------------------------------------------------------------------------------
RESUME = """
import muster, sys
try:
    run = muster.start_run(resume=sys.argv[1], params={"lr": 2})
    run.log({"x": 2.0}, 0)
    print(run.run)
except RuntimeError as error:
    print(type(error).__name__, error)
"""


def test_a_second_writer_is_refused_while_the_first_lives_and_is_a_new_attempt_after_it(machine, record):
    with machine.start(BEGIN + "sys.stdin.read()") as script:
        assert script.stdout is not None
        run = script.stdout.readline().strip()
        refused, _ = machine.run(RESUME, run)
        assert refused.startswith("RunRefused")
        assert f"process {script.pid}" in refused
        assert len(machine.waiting()) == 1
        script.communicate(timeout=SECONDS)
    record.ended(run)
    until(lambda: not machine.waiting(), "the first to be shipped")
    assert machine.run(RESUME, run)[0] == run
    found = until(lambda: (row := record.run(run)) and row["attempts"] == 2 and row["phase"] == "succeeded" and row)
    assert found["doc"]["external"]["pid"] > 0
    assert [row["attempt"] for row in record.rows("run_attempts", run)] == [1, 2]
    assert {row["key"]: row["value"] for row in record.rows("run_params", run)} == {"lr": "2"}


@pytest.mark.parametrize(
    ("call", "words"),
    [
        ("muster.start_run(project='absent')", "RunRefused.*absent"),
        ("muster.start_run(resume='absent-run')", "RunRefused.*absent-run"),
        ("muster.start_run(resume='../../absent')", "RunRefused.*absent"),
        ("muster.start_run(name='half \\ud800', tags={'a': '\\ud800'}, project='absent')", "RunRefused.*absent"),
        ("muster.start_run(name='n' * 10_240)", "RunRefused.*name"),
        ("muster.start_run(params={'k' * 10_240: 1})", "ValueError.*1 to 250"),
        ("muster.start_run(params={'k': 'v' * 10_240})", "RunRefused.*8,000"),
        ("muster.start_run(url='nonsense')", "ValueError.*HOST:PORT"),
    ],
)
def test_what_the_server_can_not_take_is_told_and_leaves_nothing(machine, call, words):
    _, err = machine.run(f"import muster\n{call}", code=1)
    assert re.search(words, err.splitlines()[-1]), err
    assert machine.waiting() == []


def test_a_token_that_is_not_valid_is_told(machine):
    machine.env = {"MUSTER_URL": machine.server.url, "MUSTER_TOKEN": "mst_no_no"}
    _, err = machine.run(BEGIN, code=1)
    assert "The token is not valid" in err


def test_other_ranks_of_a_gang_outside_write_nothing(machine):
    machine.env = {"RANK": "1", "WORLD_SIZE": "2"}
    out, err = machine.run(BEGIN + "run.artifact(sys.executable)")
    assert (out, err) == ("", "")
    assert machine.waiting() == []
