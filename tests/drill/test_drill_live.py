"""Drills on a real server: faults in a job that recovers, and in one that does not."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

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
