"""Drills on a real server: faults in a job that recovers, and in one that does not."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from components import memory_groups, require
from live import LiveServer, call_muster, live_server, marked_processes, until
from muster.client import Client

PROGRAM = """
import hashlib, time
from muster import runtime

done, state = 0, b"seed"
if folder := runtime.last_checkpoint():
    done, state = int((folder / "step").read_text()), (folder / "weights").read_bytes()
for step in range(done + 1, 31):
    state = (state + hashlib.sha256(state).digest())[-4096:]
    time.sleep(0.1)
    runtime.report(step=step, loss=state[-1] / 256)
    if step % 5 == 0:
        with runtime.checkpoint(step) as folder:
            (folder / "step").write_text(str(step))
            (folder / "weights").write_bytes(state)
"""


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    with live_server(tmp_path_factory.mktemp("drill") / "home", "--nodes", "2", "--cpus", "4") as server:
        yield server


def _drill(live: LiveServer, folder: Path, *words: str, program: str = PROGRAM):
    (folder / "train.py").write_text(program)
    (folder / "job.yaml").write_text("name: job\nworkdir: .\nrun: python train.py\nretry: {backoff: 0s}\n")
    done = call_muster("--home", str(live.home), "drill", str(folder / "job.yaml"), "--json", *words)
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


def test_a_job_that_saves_and_loads_holds_and_its_run_has_the_report(live, tmp_path):
    names = ["kill-launcher", "damaged-checkpoint", "file-handles", "ignores-sigterm", "clock-jump", "server"]
    code, told = _drill(live, tmp_path, *(word for name in names for word in ("-s", name)))
    assert code == 0, json.dumps(told, indent=1)
    results = {one["scenario"]: one for one in told["results"]}
    verdicts = {name: one["verdict"] for name, one in results.items()}
    assert verdicts == {**dict.fromkeys(names, "held"), "server": "not applicable"}, told
    assert "--private" in results["server"]["why"]
    for name in names[:-1]:
        weights = results[name]["checks"][-1]
        assert weights["ok"], weights
        assert "checkpoints at step 30" in weights["told"]
    assert [results[name]["attempts"] for name in names[:-1]] == [2, 2, 2, 2, 1]
    assert results["kill-launcher"]["times"]["new_step"] is not None
    assert results["damaged-checkpoint"]["steps_again"] > 0
    with Client(live.url, live.token) as client:
        job = results["kill-launcher"]["job"]
        page = client.read_artifact(job, "drill/report.md").decode()
        assert "**held**" in page
        assert told["reference"] in page
        assert any("drill kill-launcher: held" in note["text"] for note in client.notes(job))
    until(lambda: not marked_processes(live.home), "no process to be left")


# Two ranks that exchange a byte in each step, and read a record from the middle of a file.
GANG = """
import hashlib, json, os, socket, time
from pathlib import Path
from muster import runtime

def peers():
    place = Path(os.environ["MUSTER_CHECKPOINT_DIR"], f"port-{runtime.attempt()}")
    if runtime.rank() == 0:
        server = socket.create_server(("127.0.0.1", 0))
        place.parent.mkdir(parents=True, exist_ok=True)
        place.with_suffix(".new").write_text(str(server.getsockname()[1]))
        place.with_suffix(".new").replace(place)
        return server.accept()[0]
    while not place.exists():
        time.sleep(0.01)
    return socket.create_connection(("127.0.0.1", int(place.read_text())))

done, state = 0, b"seed"
if folder := runtime.last_checkpoint():
    done, state = int((folder / "step").read_text()), (folder / "weights").read_bytes()
data, peer = open("data.jsonl", "rb").read(), peers()
for step in range(done + 1, 61):
    peer.sendall(b"x")
    if peer.recv(1) != b"x":
        raise ConnectionError("the other rank is gone")
    record = data[SIZE * (200 + step % 20) :][:SIZE]
    state = (state + READ + hashlib.sha256(state).digest())[-4096:]
    time.sleep(0.1)
    runtime.report(step=step, loss=state[-1] / 256)
    if runtime.rank() == 0 and step % 5 == 0:
        with runtime.checkpoint(step) as folder:
            (folder / "step").write_text(str(step))
            (folder / "weights").write_bytes(state)
"""
STRICT = 'json.loads(record)["text"].encode()'
SIZE = 64  # bytes of a record


def _gang(live: LiveServer, folder: Path, read: str, *words: str, program: str = GANG):
    text = "".join(json.dumps({"text": f"sample {number}"}).ljust(SIZE - 1) + "\n" for number in range(420))
    (folder / "data.jsonl").write_text(text)
    program = program.replace("READ", read).replace("SIZE", str(SIZE))
    code, told = _drill(live, folder, "-o", "nproc=2", *words, program=program)
    assert (folder / "data.jsonl").read_text() == text  # the data itself is never damaged
    return code, told, {one["scenario"]: one for one in told["results"]}


def _check(result, words: str):
    return next(one for one in result["checks"] if words in one["name"])


def test_damaged_data_used_up_memory_and_cut_connections_are_survived_or_told(live, tmp_path):
    names = ["host-memory", "corrupt-sample", "server-unreachable", "peer-reset"]
    words = [word for name in names for word in ("-s", name)]
    code, told, results = _gang(live, tmp_path, STRICT, *words, "-o", "resources.memory=700MB")
    assert code == 0, json.dumps(told, indent=1)
    assert {name: one["verdict"] for name, one in results.items()} == dict.fromkeys(names, "held")
    assert "its limit is 700.0 MB" in _check(results["host-memory"], "ended as")["told"]
    assert "UnicodeDecodeError" in _check(results["corrupt-sample"], "says why")["told"]
    assert "data.jsonl" in results["corrupt-sample"]["fault"]
    assert results["server-unreachable"]["attempts"] == 1
    assert _check(results["server-unreachable"], "every report")["ok"]
    assert results["peer-reset"]["attempts"] == 2
    for name in ("host-memory", "server-unreachable", "peer-reset"):
        assert _check(results[name], "the same weights")["ok"]


def test_a_program_that_learns_from_damaged_data_does_not_hold(live, tmp_path):
    code, told, results = _gang(live, tmp_path, "record", "-s", "corrupt-sample")
    assert (code, results["corrupt-sample"]["verdict"]) == (1, "did not hold"), told
    assert results["corrupt-sample"]["why"].startswith("the same weights")


def test_a_program_that_skips_damaged_data_and_reports_it_holds(live, tmp_path):
    skip = """
def text_of(record, step):
    if record.isascii():
        return record
    runtime.report(step=step, skipped_samples=1)
    return b""
"""
    program = GANG.replace("\ndone, state", f"{skip}\ndone, state")
    read = "text_of(record, step)"
    code, told, results = _gang(live, tmp_path, read, "-s", "corrupt-sample", program=program)
    assert (code, results["corrupt-sample"]["verdict"]) == (0, "held"), told
    assert "skipped_samples" in _check(results["corrupt-sample"], "the same weights")["told"]


@pytest.mark.component("cgroup")
def test_a_kernel_without_memory_is_told_from_other_ends(live, tmp_path):
    parent, _ = memory_groups()
    require("a memory control group", os.access(parent, os.W_OK), "Run the tests as root, with cgroups mounted.")
    program = PROGRAM.replace("range(done + 1, 31)", "range(done + 1, 121)")
    code, told = _drill(live, tmp_path, "-s", "host-memory", "--no-reference", program=program)
    assert code == 0, json.dumps(told, indent=1)
    assert "killed by the kernel" in _check(told["results"][0], "ended as")["told"]
    assert not list(parent.rglob("muster-drill-*"))


def test_a_program_that_begins_anew_after_a_fault_does_not_hold(live, tmp_path):
    """It reads no checkpoint, and its result depends on the attempt."""
    wrong = PROGRAM.replace("folder := runtime.last_checkpoint()", "False").replace(
        'b"seed"', "bytes([runtime.attempt()])"
    )
    code, told = _drill(live, tmp_path, program=wrong)
    assert code == 1
    (result,) = told["results"]
    assert result["verdict"] == "did not hold"
    assert result["why"].startswith("the same weights as the undisturbed run: checkpoints at step 30"), told


def test_random_faults_can_be_repeated_and_leave_nothing(live, tmp_path):
    words = ("--every", "1s", "--for", "3s", "--seed", "7", "-s", "kill-rank", "--no-reference")
    code, told = _drill(live, tmp_path, *words)
    assert code == 0, json.dumps(told, indent=1)
    assert told["seed"] == 7
    assert told["faults"]["kill-rank"] >= 1, told
    assert told["results"][0]["checks"][0]["ok"]
