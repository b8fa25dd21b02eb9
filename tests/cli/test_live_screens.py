"""Screens that are drawn again, on a real terminal; what `submit` says of start and cost; other tools' verbs."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess

import pytest
from test_watch import CTRL_C, MUSTER, WAITS, terminal  # noqa: F401 - a fixture

from live import until
from muster.cli.main import OTHER_VERBS, VERBS

REPORTS = """python3 -c "
import time
from pathlib import Path
from muster.runtime import report
for step in range(3): report(step=step, score=float(step))
while not Path('go').exists(): time.sleep(0.05)
for step in range(3, 400): report(step=step, score=float(step))
" """


@pytest.fixture
def waiting(live):
    """A job that runs until the test is over."""
    job = live.submit(WAITS, name="held")
    until(lambda: live.job(job["id"])["phase"] == "running", "the job to run")
    yield job["id"]
    live.post(f"/v1/jobs/{job['id']}/stop", {"force": True})
    live.wait(job["id"])


def test_ls_watch_shows_what_changed_until_ctrl_c(live, waiting, terminal):  # noqa: F811
    screen = terminal("ls", "--watch", "--every", "0.5")
    screen.until(waiting)
    other = live.submit("true", name="comes-later")["id"]
    screen.until(other)
    screen.until("succeeded")
    screen.press(CTRL_C)
    assert screen.exit_code() == 0
    assert "Traceback" not in screen.plain()
    live.wait(other)


def test_ls_watch_as_json_is_a_document_a_line(live, waiting):
    env = {**os.environ, "MUSTER_HOME": str(live.home)}
    command = [*MUSTER, "ls", "--watch", "--json", "--every", "0.5"]
    watching = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True)
    for _ in range(2):
        assert waiting in [job["id"] for job in json.loads(watching.stdout.readline())["jobs"]]
    watching.send_signal(signal.SIGINT)
    watching.communicate(timeout=60)
    assert watching.returncode == 0


def test_a_screen_needs_a_terminal(waiting, at_home):
    failed = at_home("ls", "--watch")
    assert (failed.code, failed.out) == (2, "")
    assert "not a terminal" in failed.err


def test_top_shows_nodes_and_jobs_and_follows_them(live, waiting, terminal):  # noqa: F811
    screen = terminal("top", "--every", "0.5")
    shown = screen.until(waiting)
    assert re.search(r"1 node\s+CPUs 1/\d+\s+1 running", shown)
    queued = live.submit("true", name="too-big", resources={"cpus": live.get("/v1/nodes")["nodes"][0]["total"]["cpus"]})
    screen.until("1 running, 1 queued")
    live.post(f"/v1/jobs/{queued['id']}/stop", {"force": True})
    screen.press(CTRL_C)
    assert screen.exit_code() == 0


def test_top_once_and_as_json(live, waiting, at_home):
    assert waiting in at_home("top", "--once").out
    found = at_home("top", "--json").json
    assert waiting in [job["id"] for job in found["jobs"]]
    assert waiting in found["nodes"][0]["jobs"]


def test_a_curve_is_drawn_again_until_the_run_has_ended(live, at_home, terminal, tmp_path):  # noqa: F811
    job = live.submit(REPORTS, name="grows", workdir=str(tmp_path))["id"]
    until(lambda: 0 in live.metric(job, "score").get(1, ([], []))[0], "the first points")
    screen = terminal("runs", "show", job, "--curve", "score", "--follow")
    screen.until("score")
    assert "350" not in screen.plain()
    (tmp_path / "go").touch()
    screen.until("350")
    assert screen.exit_code() == 0
    assert f"{job} succeeded" in screen.plain()
    refused = at_home("runs", "show", job, "--follow")
    assert refused.code == 2
    assert "--curve" in refused.err


@pytest.mark.parametrize(("bell", "rings"), [("0s", 1), ("off", 0), ("1h", 0)])
def test_the_end_of_a_run_rings(terminal, monkeypatch, bell, rings):  # noqa: F811
    monkeypatch.setenv("MUSTER_BELL", bell)
    screen = terminal("run", "--name", "rings", "--", "true")
    assert screen.exit_code() == 0
    assert screen.shown.count("\a") == rings


def test_submit_says_when_it_starts_and_what_it_costs(live, waiting, at_home, tmp_path):
    whole = live.get("/v1/nodes")["nodes"][0]
    rules = live.get("/v1/rules")["rules"]
    cpus = whole["total"]["cpus"]
    (tmp_path / "job.yaml").write_text(f"name: costs\nrun: 'true'\nmax_duration: 30m\nresources: {{cpus: {cpus}}}\n")
    (tmp_path / "policy.yaml").write_text(f"pools: {{{whole['pool']}: {{price: 3}}}}\n")
    assert at_home("queue", "apply", "policy.yaml").code == 0
    try:
        found = at_home("submit", "job.yaml")
        (line,) = found.out.splitlines()
        assert re.match(r"submitted costs-\d+  starts (about|not|at once)", line), line
        assert re.search(
            r"; expected [\d.]+ USD.*, at most [\d.]+ \((P90|by its max_duration)\), 3\.00 an hour$", line
        ), line
        job = line.split()[1]
        estimate = live.get(f"/v1/jobs/{job}/forecast", compare=False)["estimate"]
        assert (estimate["per_hour"], estimate["most"]) == (3.0, 1800.0)
        live.post(f"/v1/jobs/{job}/stop", {"force": True})
    finally:
        with live.http() as http:
            http.put("/v1/rules", json=rules)


@pytest.mark.parametrize("word", ["cancel", "ps", "kill", "sbatch"])
def test_verbs_of_other_tools_are_answered_with_ours(muster, word):
    found = muster(word, "something")
    assert found.code == 2
    assert f"There is no `muster {word}`" in found.err
    assert f"`muster {OTHER_VERBS[word]}`" in found.err


def test_every_answer_names_a_verb_that_exists():
    verbs = {verb.name for verb in VERBS}
    assert not OTHER_VERBS.keys() & verbs
    assert {answer.split()[0] for answer in OTHER_VERBS.values()} <= verbs


@pytest.mark.usefixtures("without_torch")
def test_doctor_tells_how_to_complete(muster, monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("SHELL", "/bin/bash")
    checks = {check["name"]: check for check in muster("doctor", "--json").json["checks"]}
    assert "muster --install-completion" in checks["completion"]["hint"]
    made = tmp_path / ".bash_completions" / "muster.sh"  # where Typer writes it
    made.parent.mkdir()
    made.touch()
    checks = {check["name"]: check for check in muster("doctor", "--json").json["checks"]}
    assert not checks["completion"]["hint"]
