"""The demo's own parts: when it kills, whom it kills, what it says, and when it calls a run recovered."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

from live import marked_processes, until
from muster.cli.demo import Plan, find_rank, recovered, same_again, tenths
from muster.cli.demo_view import Result, Screen, last_screen, progress_line, tell, write_picture
from muster.client import Client, Job
from muster.core.reasons import reason

WAITS = "import sys; print('up', flush=True); sys.stdin.read()"


def _job(**changes) -> Job:
    view = {
        "id": "demo-1", "number": 1, "name": "demo", "kind": "train", "project": "default", "queue": "default",
        "user": "admin", "phase": "running", "reason": None, "since": 0.0, "submitted_at": 0.0, "started_at": 0.0,
        "finished_at": None, "attempt": 1, "nodes": ["local"], "num_nodes": 1, "nproc": 2, "resources": {},
        "priority": 50, "restarts": {}, "checkpoint": {"step": 170}, "purpose": None, "tags": {}, "run": "",
        "workdir": None,
        "progress": {
            "step": 180, "total": 350, "time": 5.0, "eta": 12.0, "metrics": {"loss": 0.61, "tokens_per_s": 25000.0},
        },
    }  # fmt: skip
    return Job.from_view({**view, **changes}, Client())


def _event(kind, attempt=1, **data):
    return {"kind": kind, "time": 10.0, "job": "demo-1", "attempt": attempt, "data": data}


def _marked(job, rank, *command):
    env = {**os.environ, "MUSTER_JOB": job, "RANK": str(rank)}
    return subprocess.Popen(command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def test_the_rank_is_the_process_below_its_shell_and_no_other_rank_or_job():
    # The second command keeps the shell from turning into Python: both then carry the marks of the rank.
    nested = f'"{sys.executable}" -c "{WAITS}"; exit $?'
    job = f"demo-{os.getpid()}"
    started = [
        _marked(job, 1, "/bin/sh", "-c", nested),
        _marked(job, 0, sys.executable, "-c", WAITS),
        _marked(f"{job}0", 1, sys.executable, "-c", WAITS),
    ]
    try:
        assert [process.stdout.readline() for process in started] == ["up\n"] * 3
        found = find_rank(job, 1)
        assert found is not None
        assert found != started[0].pid
        stat = Path(f"/proc/{found}/stat").read_text()
        assert int(stat.rpartition(")")[2].split()[1]) == started[0].pid
        assert find_rank(job, 0) == started[1].pid
        assert find_rank(job, 2) is None
    finally:
        for process in started:
            process.communicate(timeout=180)
    assert find_rank(job, 1) is None


@pytest.mark.parametrize(
    ("changes", "kills"),
    [
        ({}, True),
        ({"progress": {"step": 174}}, False),  # not halfway
        ({"checkpoint": {"step": 175}}, False),  # too few steps to repeat
        ({"checkpoint": None}, False),
        ({"progress": None}, False),
        ({"attempt": 2}, False),
        ({"phase": "stopping"}, False),
    ],
)
def test_it_kills_once_past_the_middle_with_a_checkpoint_to_go_back_to(changes, kills):
    assert Plan(350, drill=True).kill_now(_job(**changes)) is kills
    assert not Plan(350, drill=False).kill_now(_job(**changes))


def test_every_length_has_room_for_checkpoints_before_the_middle():
    assert all(2 * Plan(steps, True).save_every <= steps / 2 for steps in range(60, 2000, 7))
    assert Plan(350, True).save_every == 25


def test_events_become_sentences_with_their_reasons():
    cause = {"message": "rank 1 on local was killed by SIGKILL\nlast output"}
    ended = tell(_event("attempt.ended", outcome="failed", reason=cause))
    assert ended.text == "attempt 1 ended: rank 1 on local was killed by SIGKILL"
    planned = tell(_event("attempt.planned", 2, seats=[{"node": "local"}]), 175)
    assert planned.text == "attempt 2: placed on local, starts from the checkpoint committed at step 175"
    again = tell(_event("job.requeued", reason=cause, charge="worker", not_before=11.0))
    assert "in 1 s" in again.text
    assert "worker" in again.text
    assert tell(_event("checkpoint.committed", step=25, bytes=7_300_000)).minor
    assert tell(_event("attempt.ended", outcome="succeeded", reason=cause)) is None
    assert tell(_event("worker.running", worker=0)) is None


def test_one_line_says_where_the_job_stands():
    assert progress_line(_job()) == "running, attempt 1, step 180 of 350, loss 0.610, tokens/s 25,000, 12 s left"
    assert progress_line(_job(since=6.0)) == "running, attempt 1, step 180 of 350 so far"
    waits = _job(phase="queued", progress=None, reason=reason("backing_off", "waiting 1 s\nmore").to_dict())
    assert progress_line(waits) == "queued, attempt 1, no step is done yet, waiting 1 s"


@pytest.mark.parametrize(
    ("from_step", "first_step", "expected"), [(175, 176, True), (175, 1, False), (None, 1, False), (175, 177, False)]
)
def test_recovered_means_that_the_second_attempt_went_on_from_the_checkpoint(from_step, first_step, expected):
    attempts = [{"from_step": None}, {"from_step": from_step}]
    curves = [{"steps": [1, 2]}, {"steps": [first_step]}]
    assert recovered(attempts, curves) is expected
    assert not recovered(attempts[:1], curves[:1])
    assert not recovered([*attempts, {"from_step": 200}], curves)


def test_tenths_count_a_repeated_step_once():
    curves = [{"steps": [1, 2, 3], "values": [4.0, 9.0, None]}, {"steps": [2, 3], "values": [3.0, 1.0]}]
    assert tenths(curves) == (4.0, 1.0)
    assert tenths([]) == (None, None)


def test_a_repeated_step_is_the_same_to_the_last_bit_or_not():
    first = {"steps": [1, 2, 3], "values": [4.0, 0.1 + 0.2, 1.0]}
    assert same_again([first, {"steps": [2, 3, 4], "values": [0.1 + 0.2, 1.0, 0.5]}])
    assert not same_again([first, {"steps": [2, 3, 4], "values": [0.3, 1.0, 0.5]}])
    assert not same_again([first])


def test_the_running_screen_fits_a_small_terminal_with_the_newest_lines_on_it():
    screen = Screen("Muster demo", 0.0, _job())
    screen.lines = [tell(_event("checkpoint.committed", step=step, bytes=1)) for step in range(25, 200, 25)]
    screen.lines.append(tell(_event("job.requeued", reason={"message": "x"}, charge="worker", not_before=11.0)))
    screen.curves = [{"attempt": 1, "steps": list(range(180)), "values": [3.0 - i / 100 for i in range(180)]}]
    for height in (16, 24, 50):
        console = Console(file=io.StringIO(), width=80, height=height)
        printed = _printed(console, screen)
        assert len(printed) <= height
        assert "restarting the whole gang" in printed[-1]
        assert sum("checkpoint committed" in line for line in printed) == 1


def test_the_last_screen_tells_the_whole_story_and_fits_a_picture(tmp_path):
    screen = Screen("Muster demo", 0.0)
    screen.lines = [
        tell(_event("checkpoint.committed", step=25, bytes=1)),
        tell(_event("job.succeeded", reason={"message": "done"})),
    ]
    screen.curves = [
        {"attempt": 1, "steps": [1, 2, 3], "values": [3.0, 2.0, 1.5]},
        {"attempt": 2, "steps": [3, 4], "values": [1.5, 1.0]},
    ]
    summary = {
        "steps": 4,
        "steps_repeated": 1,
        "seconds_total": 40.0,
        "seconds_lost": 8.0,
        "goodput": 0.8,
        "restarts": [{"attempt": 2, "at_step": 2}],
    }
    checks = {"the run succeeded": True, "the loss fell clearly": False}
    result = Result(_job(), summary, checks, 3.0, 1.0, True, ["muster status demo-1"])
    assert not result.ok
    content = last_screen(screen, result, 100)
    printed = "\n".join(_printed(Console(file=io.StringIO(), width=100), content))
    for words in (
        "1 were done twice",
        "8.0 s were lost",
        "80%",
        "attempt 1",
        "attempt 2",
        "✓ the run",
        "✗ the loss",
        "status demo-1",
    ):
        assert words in printed
    assert "checkpoint committed" not in printed
    write_picture(tmp_path / "new" / "demo.svg", content, "muster demo")
    svg = (tmp_path / "new" / "demo.svg").read_text()
    assert svg.startswith("<svg")
    assert "font-face" not in svg


def _printed(console, content) -> list[str]:
    with console.capture() as captured:
        console.print(content)
    return captured.get().rstrip().splitlines()


def test_the_whole_demo_recovers_and_leaves_nothing_behind(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "muster", "demo", "--drill", "--steps", "60", "--json"]
    env = {**os.environ, "MUSTER_HOME": str(tmp_path)}
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    told = json.loads(done.stdout)
    assert told["ok"]
    assert told["killed"]["rank"] == 1
    assert told["summary"]["attempts"] == 2
    assert told["summary"]["restarts"][0]["reason"]["code"] == "killed_by_signal"
    assert told["loss"]["last"] < told["loss"]["first"]
    until(lambda: not marked_processes(tmp_path), "no process to be left behind")
    assert not (tmp_path / "demo" / "server.json").exists()
