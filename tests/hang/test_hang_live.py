"""Real gangs that hang: stopped processes, a stuck loader, a frozen launcher; and ordinary ones that don't."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hang_kit import COLLECTIVE, LITTLE, hangs, pid_of, stop_process, submit, verdict

from live import LiveServer, call_muster, until

QUICK = {"least": "4s"}


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    server = LiveServer(tmp_path_factory.mktemp("hang") / "home")
    server.start()
    yield server
    server.stop()


@pytest.fixture(scope="module", autouse=True)
def slow(live: LiveServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A job with a slow rank, which trains while the other tests wait."""
    job = submit(live, tmp_path_factory.mktemp("slow"), "off", envs={"SLOW": "1"})
    yield job
    live.post(f"/v1/jobs/{job}/stop", {"force": True})
    live.wait(job)


def test_a_stopped_rank_is_named_its_stacks_shown_and_the_gang_restarted(live: LiveServer, tmp_path: Path) -> None:
    job = submit(live, tmp_path, QUICK)
    stop_process(pid_of(tmp_path, 1))
    found = verdict(live, job)
    said = found["verdict"]
    assert (said["kind"], said["behind"], found["action"]) == ("process stopped", [1], "restart")
    assert len(found["verdict"]["signals"]) == 2
    assert "rank 1 on" in found["reason"]["message"]
    assert "is behind" in found["reason"]["message"]
    assert live.wait(job)["phase"] == "succeeded"
    events = live.get("/v1/events", job=job, limit=1000)["events"]
    (requeued,) = [event["data"] for event in events if event["kind"] == "job.requeued"]
    assert (requeued["charge"], requeued["reason"]["code"]) == ("worker", "hung")
    (kept,) = live.get(f"/v1/jobs/{job}/stacks")["stacks"]
    assert (kept["attempt"], kept["ranks"]) == (1, kept["world"])
    ranks = live.get(f"/v1/jobs/{job}/stacks/{kept['id']}")["ranks"]
    states = {one["rank"]: [thread["state"] for thread in one["processes"][0]["threads"]] for one in ranks}
    assert any("stopped" in state for state in states[1])
    notes = until(lambda: [n for n in live.get(f"/v1/runs/{job}/notes")["entries"] if n["kind"] == "alert"], "the note")
    assert "hangs: no step for" in notes[0]["text"]
    env = {**os.environ, "MUSTER_HOME": str(live.home)}
    assert "is behind" in call_muster("why", job, env=env).stdout.replace("\n", " ")


def test_the_rank_in_a_stuck_loader_is_behind_those_that_wait_for_it(live: LiveServer, tmp_path: Path) -> None:
    job = submit(live, tmp_path, {**QUICK, "action": "report"})
    (tmp_path / "loader-1-2").touch()
    found = verdict(live, job)
    assert (found["verdict"]["kind"], found["verdict"]["behind"], found["action"]) == ("steps stopped", [2], "report")
    assert "rank 2" in live.job(job)["reason"]["message"]
    assert live.job(job)["phase"] == "running"
    live.post(f"/v1/jobs/{job}/stop")
    live.wait(job)


def test_a_gang_that_goes_on_by_itself_is_said_to(live: LiveServer, tmp_path: Path) -> None:
    job = submit(live, tmp_path, {**QUICK, "action": "report"})
    stop_process(pid_of(tmp_path, 0))
    verdict(live, job)
    os.kill(pid_of(tmp_path, 0), signal.SIGCONT)
    until(lambda: live.job(job)["reason"] is None, "the reason to be gone")
    live.post(f"/v1/jobs/{job}/stop")
    live.wait(job)


def test_a_frozen_launcher_is_killed_and_the_gang_restarted(live: LiveServer, tmp_path: Path) -> None:
    job = submit(live, tmp_path, QUICK)
    identity = json.loads((live.home / "local" / "attempts" / job / "1" / "0" / "launcher.json").read_text())
    stop_process(identity["pid"])
    assert verdict(live, job)["verdict"]["kind"] == "launcher silent"
    assert live.wait(job)["phase"] == "succeeded"


def test_ordinary_pauses_are_no_hangs(live: LiveServer, tmp_path: Path) -> None:
    """An evaluation that says so and waits, and a slow step that uses its CPU; each far longer than the limit."""
    job = submit(live, tmp_path, {"least": "5s"}, envs={"PAUSE": "15", "STEPS": "120"})
    ended = live.wait(job)
    assert (ended["phase"], ended["reason"]["code"]) == ("succeeded", "completed"), ended["reason"]
    assert hangs(live, job) == []


def test_a_program_without_steps_is_judged_by_its_activity_or_left_out(live: LiveServer) -> None:
    quick = {"patience": "4s", "action": "report"}
    idle = live.submit("sleep 3600", hang=quick, resources=LITTLE)["id"]
    printing = live.submit("while :; do echo x; sleep 1; done", hang=quick, resources=LITTLE)["id"]
    off = live.submit("sleep 3600", hang="off", resources=LITTLE)["id"]
    found = verdict(live, idle)
    assert (found["verdict"]["kind"], found["verdict"]["behind"]) == ("no activity", [0])
    until(lambda: live.output(printing).count("x") > 9, "more lines than the patience has seconds")
    assert (hangs(live, printing), hangs(live, off)) == ([], [])
    for job in (idle, printing, off):
        live.post(f"/v1/jobs/{job}/stop")
        live.wait(job)


def test_the_rank_that_does_not_come_to_a_collective_is_behind(live: LiveServer, tmp_path: Path) -> None:
    (tmp_path / "collective.py").write_text(COLLECTIVE)
    run = f"exec {sys.executable} {tmp_path}/collective.py"
    job = live.submit(run, nproc=2, hang={"patience": "4s", "action": "report"}, resources=LITTLE)["id"]
    found = verdict(live, job)["verdict"]
    assert (found["kind"], found["behind"]) == ("no activity", [1])
    assert found["signals"][-1].endswith("; rank 1 began 1 fewer than the others")
    assert [one["collectives"] for one in found["ranks"]] == [{"0": 20}, {"0": 21}]
    (kept,) = until(lambda: live.get(f"/v1/jobs/{job}/stacks")["stacks"], "stacks")
    until(lambda: len(live.get(f"/v1/jobs/{job}/stacks/{kept['id']}")["ranks"]) == 2, "those of both")
    ranks = live.get(f"/v1/jobs/{job}/stacks/{kept['id']}")["ranks"]
    files = {frame["file"] for one in ranks for process in one["processes"] for thread in process["threads"]
             for frame in thread["frames"]}  # fmt: skip
    assert any(file.endswith("collective.py") for file in files)
    assert not any(file.endswith("rank_collectives.py") for file in files)  # the thread that counts is left out
    live.post(f"/v1/jobs/{job}/stop", {"force": True})
    live.wait(job)


def test_a_slow_rank_is_named_and_nothing_is_stopped_for_it(live: LiveServer, slow: str) -> None:
    def told() -> list[dict[str, Any]]:
        events = live.get("/v1/events", job=slow, limit=1000)["events"]
        return [event["data"] for event in events if event["kind"] == "attempt.straggler"]

    first = until(told, "a verdict")[0]
    assert (first["verdict"]["ranks"], first["verdict"]["evidence"]) == ([1], "waiting")
    job = live.job(slow)
    assert (job["phase"], job["reason"]["code"]) == ("running", "straggler")
    entries = live.get(f"/v1/nodes/{first['nodes'][0]}/history")["entries"]
    assert ("straggler", slow) in [(entry["kind"], entry["job"]) for entry in entries]


def test_a_hang_is_found_by_a_server_that_was_started_after_it(live: LiveServer, tmp_path: Path) -> None:
    job = submit(live, tmp_path, QUICK)
    stop_process(pid_of(tmp_path, 1))
    live.kill()
    live.start()
    found = verdict(live, job)["verdict"]
    # By the rate of its progress, unless the launcher still had steps to report that this server has learnt from.
    assert (found["behind"], found["limit"]) in [([1], 60.0), ([1], 4.0)]
    assert live.wait(job)["phase"] == "succeeded"
