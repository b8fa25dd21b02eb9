"""SIGKILL of the server at every commit point, and of what it started: nothing lost, nothing started twice."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import httpx
import pytest

from live import LiveServer, marked_processes, until

POINTS = [
    *(f"store.before_commit:{n}" for n in (1, 4, 8)),
    *(f"store.after_commit:{n}" for n in (1, 4, 8)),
    "control.after_plan:2",
    "control.before_launch:1",
    "control.after_launch:1",
    "control.after_launch:2",
]
STEPS = 40


def submit_through(server: LiveServer, key: str, run: str, **spec: object) -> str:
    """Submits as a careful client does: with a key, again and again until it is told that it was accepted."""

    def attempt() -> str | None:
        assert server.process is not None
        if server.process.poll() is not None:
            server.start()
        try:
            body = {"spec": {"name": "job", "run": run, "workdir": str(server.home), **spec}}
            answer: dict[str, str] = server.post("/v1/jobs", body, **{"Idempotency-Key": key})
            return answer["id"]
        except (httpx.TransportError, AssertionError, FileNotFoundError):
            return None

    found = until(attempt, f"{key} to be accepted")
    assert found is not None
    return found


def settle(server: LiveServer, *jobs: str) -> None:
    """Waits until the jobs are over, starting the server again if its fault strikes meanwhile."""

    def over() -> bool:
        assert server.process is not None
        if server.process.poll() is not None:
            server.start()
        try:
            return all(server.job(job)["finished_at"] for job in jobs)
        except (httpx.TransportError, AssertionError, FileNotFoundError):
            return False

    until(over, f"{jobs} to be over")


def assert_whole(server: LiveServer, marks, jobs: dict[str, int]) -> None:
    """Every job ran once with all its ranks, and every point of every rank is there once."""
    wanted = sorted(f"{job}/1/{rank}" for job, ranks in jobs.items() for rank in range(ranks))
    assert sorted(marks()) == sorted(marks(ended=True)) == wanted
    for job, ranks in jobs.items():
        view = server.job(job)
        assert (view["phase"], view["attempt"]) == ("succeeded", 1), view
        for rank in range(ranks):
            (curve,) = server.get(f"/v1/jobs/{job}/metrics/value", rank=rank)["attempts"]
            assert curve["steps"] == list(range(1, STEPS + 1))
            assert server.output(job, rank=rank) == "".join(f"step {n}\n" for n in range(1, STEPS + 1))
    until(lambda: not marked_processes(server.home), "no process to be left behind")


@pytest.mark.parametrize("point", POINTS)
def test_killed_at_a_commit_point(server: LiveServer, program, marks, point: str) -> None:
    server.start(wait=False, MUSTER_FAULT=point)
    until(lambda: server.process.poll() is not None or (server.home / "server.json").exists())
    first = submit_through(server, "first", program(STEPS, 0.005), nproc=2)
    second = submit_through(server, "second", program(STEPS, 0.005), num_nodes=2)
    settle(server, first, second)
    assert server.ends == [-signal.SIGKILL], "the fault struck, once"
    assert_whole(server, marks, {first: 2, second: 2})


@pytest.mark.parametrize("point", ["control.before_launch:2", "control.after_launch:2", "control.after_plan:4"])
def test_killed_between_the_end_of_a_job_and_the_start_of_one_that_needs_it(
    server: LiveServer, program, marks, point: str
) -> None:
    server.start(wait=False, MUSTER_FAULT=point)
    until(lambda: server.process.poll() is not None or (server.home / "server.json").exists())
    first = submit_through(server, "first", program(STEPS, 0.005), name="first")
    second = submit_through(server, "second", program(STEPS, 0.005), name="second", needs=[first])
    settle(server, first, second)
    assert server.ends == [-signal.SIGKILL], "the fault struck, once"
    assert_whole(server, marks, {first: 1, second: 1})
    assert server.job(first)["finished_at"] <= server.job(second)["started_at"]


def test_away_while_jobs_run_and_finish(server: LiveServer, program, marks) -> None:
    server.start()
    good = server.submit(program(STEPS, 0.02))["id"]
    bad = server.submit(f"until test -e {server.home}/go; do sleep 0.05; done; echo last words; exit 7")["id"]
    server.wait(good, "running")
    server.wait(bad, "running")
    server.kill()
    (server.home / "go").touch()
    until(lambda: marks(ended=True), "the job to finish on its own")
    server.start()
    assert server.wait(bad)["reason"]["code"] == "user_error"
    assert "exit code 7" in server.job(bad)["reason"]["message"]
    assert server.output(bad) == "last words\n"
    settle(server, good)
    assert_whole(server, marks, {good: 1})


def test_a_clean_stop_leaves_jobs_running_and_the_next_server_adopts_them(server: LiveServer, program, marks) -> None:
    server.start()
    job = server.submit(program(STEPS, 0.02))["id"]
    server.wait(job, "running")
    assert server.stop() == 0
    assert not (server.home / "server.json").exists()
    server.start()
    settle(server, job)
    assert_whole(server, marks, {job: 1})


def launcher_pids(server: LiveServer, job: str) -> list[int]:
    paths = (server.home / "local" / "attempts" / job).glob("*/*/launcher.json")
    return [json.loads(path.read_text())["pid"] for path in paths]


@pytest.mark.parametrize("with_server", [False, True])
def test_a_killed_launcher_costs_an_attempt_and_no_orphans(
    server: LiveServer, program, marks, with_server: bool
) -> None:
    server.start()
    run = f"if [ $MUSTER_ATTEMPT = 1 ]; then setsid sleep 600 & {program(100_000, 0.01)}; else {program(STEPS)}; fi"
    job = server.submit(run, num_nodes=2, retry={"max_restarts": 0, "backoff": "50ms"})["id"]
    until(lambda: len(marks()) == 2, "both ranks to run")
    until(lambda: server.get(f"/v1/jobs/{job}/metrics/value", rank=0)["attempts"], "the first step of rank 0")
    (pid, _) = launcher_pids(server, job)
    if with_server:
        server.kill()
    os.kill(pid, signal.SIGKILL)
    if with_server:
        server.start()
    view = server.wait(job)
    assert (view["phase"], view["attempt"], view["restarts"]) == ("succeeded", 2, {"node": 1})
    first = server.get(f"/v1/jobs/{job}/attempts")["attempts"][0]
    assert first["reason"]["code"] == "launcher_lost"
    (lost, again) = server.get(f"/v1/jobs/{job}/metrics/value", rank=0)["attempts"]
    assert lost["steps"] == list(range(1, len(lost["steps"]) + 1))
    assert again["steps"] == list(range(1, STEPS + 1))
    assert sorted(marks()) == sorted(f"{job}/{attempt}/{rank}" for attempt in (1, 2) for rank in (0, 1))
    until(lambda: not marked_processes(server.home), "no process to be left behind")


def test_a_killed_rank_brings_everyone_back(server: LiveServer, program, marks) -> None:
    server.start()
    run = f"if [ $MUSTER_ATTEMPT = 1 ]; then {program(100_000, 0.01)}; else {program(STEPS)}; fi"
    job = server.submit(run, num_nodes=2, retry={"max_restarts": 1, "backoff": "50ms"})["id"]
    until(lambda: len(marks()) == 2, "both ranks to run")
    ranks = [pid for pid in marked_processes(server.home) if f"{job}/1/1" in _environ(pid) and "marking" in _cmd(pid)]
    os.kill(max(ranks), signal.SIGKILL)
    view = server.wait(job)
    assert (view["phase"], view["attempt"], view["restarts"]) == ("succeeded", 2, {"worker": 1})
    until(lambda: not marked_processes(server.home), "no process to be left behind")


def _environ(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/environ").read_text()
    except OSError:
        return ""


def _cmd(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return ""
