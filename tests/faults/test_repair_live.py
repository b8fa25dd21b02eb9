"""Real jobs that fail in each way that the rules of recovery know, and what is said and written down about it."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from live import LiveServer, call_muster, live_server, until

# Trains to step 30 and saves every tenth. In its first attempt it ends at step 25 in the way that its argument names.
PROGRAM = """
import json, os, shutil, signal, sys
from muster import runtime as m

how = sys.argv[1]
folder = m.last_checkpoint()
done = json.loads((folder / "state.json").read_text())["done"] if folder else 0
print("begins after step", done, flush=True)

def newest():
    return sorted(m.checkpoint_dir().glob("step-*"))[-1]

def spoil(file):
    data = bytearray(file.read_bytes())
    data[0] ^= 1
    file.write_bytes(data)

for step in range(done + 1, 31):
    m.report(step=step, loss=1 / step)
    if step % 10 == 0:
        with m.checkpoint(step) as folder:
            (folder / "state.json").write_text(json.dumps({"done": step}))
    if how == "error" and step == 25:
        raise ValueError(f"sample {os.getpid()} is bad")
    if how == "stall" and step == 25:
        os.kill(os.getpid(), signal.SIGKILL)
    if m.attempt() > 1 or step != 25:
        continue
    if how == "flip":
        spoil(newest() / "state.json")
    if how == "truncate":
        os.truncate(newest() / "state.json", 3)
    if how == "missing":
        (newest() / "state.json").unlink()
    if how == "gone":
        shutil.rmtree(newest())
    if how == "all":
        for each in m.checkpoint_dir().glob("step-*"):
            spoil(each / "state.json")
    if how == "away":
        m.checkpoint_dir().rename(f"{m.checkpoint_dir()}.away")
    os.kill(os.getpid(), signal.SIGKILL)
"""
RETRY = {"max_restarts": 9, "on": ["node", "worker", "preempted", "error"], "backoff": "0s"}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    with live_server(tmp_path_factory.mktemp("repair") / "home", config="nodes = 2\ncpus = 16\n") as made:
        (made.home / "train.py").write_text(PROGRAM)
        yield made


def start(server: LiveServer, how: str, **spec: Any) -> str:
    job = server.submit(f"{sys.executable} train.py {how}", name=how, retry=RETRY, **spec)
    return str(job["id"])


def notes(server: LiveServer, job: str, kind: str) -> list[str]:
    """The logbook's entries of a kind, once the record has the end of the job."""
    path = f"/v1/runs/{job}/notes"

    def written() -> list[dict[str, Any]] | None:
        found: list[dict[str, Any]] = server.get(path, limit=100)["entries"]
        return found if any(one["kind"] == "end" for one in found) else None

    return [one["text"] for one in until(written, "the end in the logbook") if one["kind"] == kind]


def is_away(job: dict[str, Any]) -> dict[str, Any] | None:
    return job if job["reason"] is not None and job["reason"]["code"] == "checkpoints_away" else None


def muster(server: LiveServer, *words: str) -> str:
    done = call_muster(*words, env={**os.environ, "MUSTER_HOME": str(server.home)})
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_damaged_newest_checkpoint_is_named_and_skipped(server: LiveServer) -> None:
    words = {
        "flip": "state.json: its checksum is",
        "truncate": "state.json has 3 bytes; 12 were saved",
        "missing": "state.json cannot be read: No such file or directory",
        "gone": "it is not there",
    }
    jobs = {how: start(server, how) for how in words}
    for how, job in jobs.items():
        done = server.wait(job)
        assert (done["phase"], done["attempt"]) == ("succeeded", 2), how
        assert done["checkpoint"]["step"] == 30
        assert "begins after step 10" in server.output(job, attempt=2), how
        (note,) = notes(server, job, "system")
        assert "step-000000020 is damaged and is not used" in note
        assert words[how] in note
        assert note.endswith("It goes on from step 10.")
        (event,) = server.get("/v1/events", job=job, kind="checkpoint.skipped")["events"]
        assert words[how] in event["data"]["what"]
        attempts = server.get(f"/v1/jobs/{job}/attempts")["attempts"]
        assert attempts[1]["from_step"] == 10, "not the step of the damaged one"


def test_checkpoints_that_are_away_are_waited_for_in_so_many_words(server: LiveServer) -> None:
    job = start(server, "away")
    waiting = until(
        lambda: (j := server.job(job))["reason"] and j["reason"]["code"] == "checkpoints_away" and j, "words"
    )
    assert "can't be read (nothing is there), and step 20 was saved there" in waiting["reason"]["message"]
    assert waiting["phase"] == "running"
    assert "checkpoint.wait" in muster(server, "why", job)
    folder = Path(waiting["checkpoint"]["path"]).parent
    folder.with_name(f"{folder.name}.away").rename(folder)
    assert (server.wait(job)["phase"], server.job(job)["attempt"]) == ("succeeded", 2)
    output = server.output(job, attempt=2)
    assert "the next look is in" in output
    assert "begins after step 20" in output
    found = notes(server, job, "system")
    assert "can't be read" in found[0]
    assert "are there again" in found[-1]


def test_checkpoints_that_stay_away_stop_the_job(server: LiveServer) -> None:
    job = start(server, "away", checkpoint={"wait": "1s"})
    done = server.wait(job)
    assert (done["phase"], done["reason"]["code"]) == ("stopped", "no_good_checkpoint")
    assert "step 20 was saved there" in done["reason"]["message"]


def test_without_a_good_checkpoint_the_job_stops_and_asks(server: LiveServer) -> None:
    job = start(server, "all")
    done = server.wait(job)
    assert (done["phase"], done["reason"]["code"], done["attempt"]) == ("stopped", "no_good_checkpoint", 2)
    assert "its checksum is" in done["reason"]["message"]
    assert "begins" not in server.output(job, attempt=2), "it did not begin again by itself"
    assert "--from-scratch" in muster(server, "why", job)
    muster(server, "resume", job, "--checkpoint", "10")
    again = server.wait(job)
    assert (again["phase"], again["reason"]["code"], again["attempt"]) == ("stopped", "no_good_checkpoint", 3)
    assert "from the beginning" in muster(server, "resume", job, "--from-scratch")
    assert server.wait(job)["phase"] == "succeeded"
    assert "begins after step 0" in server.output(job, attempt=4)


def test_a_checkpoint_can_be_named(server: LiveServer) -> None:
    job = start(server, "error")
    assert server.wait(job)["phase"] == "failed"
    assert "from step 10" in muster(server, "resume", job, "--checkpoint", "10")
    assert server.wait(job)["phase"] == "failed"
    first = server.job(job)["attempt"] - 1
    assert "begins after step 10" in server.output(job, attempt=first)
    assert "begins after step 20" in server.output(job, attempt=first + 1), "saved since then"


def test_the_same_error_twice_ends_the_job_and_is_shown_once(server: LiveServer) -> None:
    job = start(server, "error")
    done = server.wait(job)
    assert (done["phase"], done["reason"]["code"], done["attempt"]) == ("failed", "same_error_twice", 2)
    assert done["reason"]["data"]["attempts"] == [1, 2]
    assert "attempts 1 and 2 ended with the same error at step 25" in done["reason"]["message"]
    for command in ("why", "status"):
        said = muster(server, command, job)
        assert said.count("Traceback (most recent call last)") == 1, command
        assert "train.py" in said


def test_three_attempts_without_progress_end_the_job(server: LiveServer) -> None:
    job = start(server, "stall")
    done = server.wait(job)
    assert (done["phase"], done["reason"]["code"], done["attempt"]) == ("failed", "no_progress", 4)
    assert "attempts 2, 3 and 4 did not go beyond step 25" in done["reason"]["message"]
    assert len(notes(server, job, "restart")) == 3


def test_failures_are_listed_by_cause_node_and_code(server: LiveServer) -> None:
    """After the jobs before it: what killed their attempts is counted, on the nodes where it happened."""
    job = start(server, "flip")
    server.wait(job)
    notes(server, job, "end")  # the record is up to date

    def counted() -> dict[str, Any] | None:
        found: dict[str, Any] = server.get("/v1/failures", since=86_400)
        return found if found["causes"] else None

    found = until(counted, "failures")
    assert "killed_by_signal" in {one["name"] for one in found["causes"]}
    assert {one["node"] for one in found["nodes"]} <= {"local-0", "local-1"}
    assert found["between"] > 0
    assert found["save"] > 0, "how long saves took is in the record"
    said = muster(server, "runs", "failures")
    assert "killed_by_signal" in said
    assert "save every" in said
