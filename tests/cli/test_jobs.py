"""Jobs from the command line, on a real server: run, submit, ls, status, why, logs, stop, resume."""

from __future__ import annotations

import io
import os
import re
import sys

import pytest

from live import until
from muster.client import Client
from muster.core.errors import Refused

PYTHON = sys.executable
WAITS = "echo begun; while true; do sleep 0.05; done"


def _job_file(folder, text, name="job.yaml"):
    (folder / name).write_text(text)
    return str(folder / name)


@pytest.fixture
def waiting(live):
    """A job that has begun and goes on until it is stopped."""
    job = live.submit(WAITS, name="waits", stop_grace=1)
    until(lambda: "begun" in live.output(job["id"]), "the job's first line")
    yield job["id"]
    if live.job(job["id"])["phase"] == "running":
        live.post(f"/v1/jobs/{job['id']}/stop", {"force": True})
    live.wait(job["id"])


# --- run --------------------------------------------------------------------------------------------------------------
def test_run_shows_the_output_and_ends_as_the_job_does(at_home, tmp_path):
    found = at_home("run", "--", PYTHON, "-c", "import os; print('here:', os.getcwd(), 'two  words')")
    assert found.code == 0
    assert found.out == f"here: {tmp_path} two  words\n"
    assert "succeeded after" in found.err


def test_the_words_of_a_command_reach_it_as_they_were_typed(at_home):
    found = at_home("run", PYTHON, "-c", "import sys; print(sys.argv[1:])", "a b", "$HOME", "--nproc", "'q'")
    assert found.out == f"{['a b', '$HOME', '--nproc', chr(39) + 'q' + chr(39)]}\n"


def test_run_ends_with_the_exit_code_of_the_rank_that_failed(at_home):
    code = "import os, sys, time; time.sleep(0.2 * (os.environ['RANK'] == '0')); sys.exit(7)"
    found = at_home("run", "--nproc", "2", "--name", "fails", "--", PYTHON, "-c", code)
    assert found.code == 7
    assert "exit code 7" in found.err
    assert "See `muster logs fails-" in found.err


def test_several_ranks_are_told_apart(at_home):
    found = at_home("run", "--nproc", "2", "--", PYTHON, "-c", "import os; print('I am', os.environ['RANK'])")
    assert sorted(found.out.splitlines()) == ["[r0] I am 0", "[r1] I am 1"]


def test_run_as_json_is_a_line_for_everything_that_happens(at_home):
    found = at_home("run", "--json", "--env", "WORD=hello", "--", "printenv", "WORD")
    assert found.code == 0
    assert [line["text"] for line in found.lines if line["event"] == "log"] == ["hello"]
    assert [line["job"]["phase"] for line in found.lines if line["event"] == "end"] == ["succeeded"]
    assert found.lines[-1]["event"] == "end"
    assert {line["event"] for line in found.lines} == {"job", "log", "end"}


def test_run_takes_a_job_file_and_its_options_go_over_it(at_home, tmp_path):
    path = _job_file(tmp_path, "name: filed\nrun: printenv A B\nenvs: {A: '1', B: '2'}\n")
    found = at_home("run", "--env", "B=3", "--name", "renamed", path)
    assert (found.code, found.out) == (0, "1\n3\n")
    assert "renamed-" in found.err


def test_options_may_follow_a_job_file_and_what_follows_two_dashes_is_the_command(at_home, tmp_path):
    path = _job_file(tmp_path, "name: filed\nrun: printenv A B\nenvs: {A: '1', B: '2'}\n")
    found = at_home("run", path, "-o", "envs.B=3", "--name", "renamed")
    assert (found.code, found.out) == (0, "1\n3\n")
    assert "renamed-" in found.err
    found = at_home(
        "run", "-e", "A=7", path, "--name", "other", "--", PYTHON, "-c", "import sys; print(sys.argv)", "-o"
    )
    assert (found.code, found.out) == (0, "['-c', '-o']\n")
    assert "other-" in found.err
    wrong = at_home("run", path, "second.yaml", "-d")
    assert wrong.code == 2
    assert "'second.yaml' after the job file" in wrong.err
    wrong = at_home("run", path, "-o", "run=true", "--", "false")
    assert wrong.code == 2
    assert "`run` is given both" in wrong.err


def test_one_word_is_a_shell_line_unless_it_is_a_file(at_home, tmp_path):
    assert at_home("run", "--", "echo one && echo $((1 + 1))").out == "one\n2\n"
    assert at_home("run", "printf '%s.' 'a  b' c; exit 3").code == 3
    program = tmp_path / "two words"
    program.write_text("#!/bin/sh\necho it ran\n")
    program.chmod(0o755)
    assert at_home("run", str(program)).out == "it ran\n"
    assert at_home("run", "echo", "a && b").out == "a && b\n"


def test_run_detached_returns_the_job(at_home, live):
    found = at_home("run", "-d", "--json", "--priority", "high", "--max-duration", "1h", "--", "true")
    assert found.json["priority"] == 75
    assert live.wait(found.json["id"])["phase"] == "succeeded"
    assert "submitted true-" in at_home("run", "-d", "true").out


def test_a_command_that_does_not_exist_is_refused_before_it_starts(at_home):
    found = at_home("run", "--json", "--", "no-such-program")
    assert found.code == 1
    assert [one["code"] for one in found.json["error"]["reasons"]] == ["no_command"]


def test_a_refused_python_comes_with_the_command_to_use(at_home, live, tmp_path):
    """By `run`, `submit`, its dry run and the SDK: here the interpreter that submits is on the server's machine."""
    hint = f"Write `{sys.executable} x.py`."
    nowhere = {"PATH": str(tmp_path)}
    assert hint in at_home("run", "-e", f"PATH={tmp_path}", "--", "python", "x.py").err
    file = _job_file(tmp_path, f"run: python x.py\nenvs: {{PATH: {tmp_path}}}\n")
    assert hint in at_home("submit", file).err
    assert hint in at_home("submit", "--dry-run", file).err
    with Client(home=live.home) as client:
        (refused,) = client.submit_many([{"run": "python x.py", "workdir": str(tmp_path), "envs": nowhere}])
        assert isinstance(refused, Refused)
        assert refused.hint == hint
        with pytest.raises(Refused) as raised:
            client.submit({"run": "python x.py", "workdir": str(tmp_path), "envs": nowhere})
    assert raised.value.reasons[0].data == {"command": "python", "instead": sys.executable}


# --- submit -----------------------------------------------------------------------------------------------------------
def test_submit_takes_files_and_standard_input(at_home, live, tmp_path, monkeypatch):
    first = _job_file(tmp_path, "name: one\nrun: pwd\n", "one.yaml")
    monkeypatch.setattr("sys.stdin", io.StringIO("name: two\nrun: 'true'\n"))
    found = at_home("submit", "--json", "-o", "tags.by=test", first, "-")
    assert found.code == 0
    assert [(job["name"], job["tags"]) for job in found.json["jobs"]] == [
        ("one", {"by": "test"}),
        ("two", {"by": "test"}),
    ]
    live.wait(found.json["jobs"][0]["id"])
    assert live.output(found.json["jobs"][0]["id"]) == f"{tmp_path}\n"


def test_submit_watched_is_run(at_home, tmp_path):
    found = at_home("submit", "--watch", _job_file(tmp_path, "run: echo seen; exit 3\n"))
    assert found.code == 3
    assert "seen\n" in found.out


def test_the_same_key_is_the_same_job(at_home, tmp_path):
    path = _job_file(tmp_path, "name: keyed\nrun: 'true'\n")
    ids = [at_home("submit", "--json", "--key", "k1", path).json["jobs"][0]["id"] for _ in range(2)]
    assert ids[0] == ids[1]


def test_nothing_is_submitted_when_one_file_has_mistakes(at_home, live, tmp_path):
    good = _job_file(tmp_path, "name: goodone\nrun: 'true'\n", "good.yaml")
    bad = _job_file(tmp_path, "name: Bad Name\nrun: 'true'\nnprok: 2\n", "bad.yaml")
    found = at_home("submit", good, bad)
    assert found.code == 1
    assert f"{bad} has 2 mistakes." in found.err
    assert "Did you mean `nproc`?" in found.err
    assert live.get("/v1/jobs", name="goodone")["jobs"] == []
    assert len(at_home("submit", "--json", good, bad).json["error"]["problems"]) == 2


def test_a_dry_run_checks_and_submits_nothing(at_home, live, tmp_path):
    good = _job_file(tmp_path, "name: checked\nrun: 'true'\n")
    assert at_home("submit", "--dry-run", good).code == 0
    found = at_home("submit", "--dry-run", "--json", "-o", "num_nodes=1000", good)
    assert found.code == 1
    assert found.json["error"]["code"] == "refused"
    assert live.get("/v1/jobs", name="checked")["jobs"] == []


# --- looking ----------------------------------------------------------------------------------------------------------
def test_ls_shows_what_is_there(at_home, waiting, live):
    shown = at_home("ls", "--name", "waits").out.splitlines()
    assert shown[0].split() == ["id", "phase", "reason", "att", "progress", "nodes", "user", "age"]
    assert shown[1].split()[:2] == [waiting, "running"]
    assert at_home("ls", "--json", "--phase", "running", "--name", "waits").json["jobs"][0]["id"] == waiting
    assert at_home("ls", "--name", "nobody").err == "No jobs match.\n"
    child = live.submit("true", name="child", parent=waiting)["id"]
    assert [job["id"] for job in at_home("ls", "--parent", "waits", "--json").json["jobs"]] == [child]
    assert ["parent", waiting] in [line.split() for line in at_home("status", child).out.splitlines()]
    assert at_home("ls", "--parent", child).err == "No jobs match.\n"
    live.wait(child)
    wrong = at_home("ls", "--phase", "done")
    assert wrong.code == 2
    assert "Expected one of queued" in wrong.err


def test_a_job_that_ends_while_it_is_listed_is_listed_once(at_home, live, monkeypatch):
    job = live.submit("true", name="ends-while-listed")["id"]
    live.wait(job)
    jobs = Client.jobs
    monkeypatch.setattr(Client, "jobs", lambda self, **asked: jobs(self, **{**asked, "phase": ()}))
    assert [one["id"] for one in at_home("ls", "--name", "ends-while-listed", "--json").json["jobs"]] == [job]


def test_status_is_a_card_and_its_json_is_the_job(at_home, waiting):
    shown = at_home("status", waiting).out
    assert shown.startswith(f"{waiting} running for ")
    assert "local-0 (1 rank), 1 cpu a node" in shown
    assert f"muster logs -f {waiting}" in shown
    told = at_home("status", waiting, "--json").json
    assert (told["id"], told["phase"], told["attempts"][0]["number"]) == (waiting, "running", 1)


def test_why_says_what_holds_a_job_back_and_what_would_change_it(at_home, live, waiting):
    free = live.get("/v1/nodes")["nodes"][0]["total"]["cpus"]
    blocked = live.submit("true", name="blocked", resources={"cpus": free})["id"]
    told = at_home("why", blocked, "--json").json
    assert told["reason"]["code"] == "no_capacity"
    shown = at_home("why", blocked).out
    assert shown.startswith(f"{blocked} queued for ")
    assert told["reason"]["message"] in shown
    assert "what would change it: " in shown
    assert "how it came to it:" in shown
    assert blocked in at_home("queue", "show", "default").out
    assert at_home("stop", blocked).out == f"{blocked} ended\n"


def test_logs_of_one_rank_of_one_attempt_or_the_last_lines(at_home, live):
    command = f"{PYTHON} -c \"import os; print('from', os.environ['RANK'], 'a'); print('b')\""
    job = live.wait(live.submit(command, name="speaks", nproc=2)["id"])["id"]
    assert at_home("logs", job, "--rank", "1").out == "from 1 a\nb\n"
    assert sorted(at_home("logs", job, "-f").out.splitlines()) == ["[r0] b", "[r0] from 0 a", "[r1] b", "[r1] from 1 a"]
    assert at_home("logs", job, "--rank", "0", "--tail", "1").out == "b\n"
    line = at_home("logs", job, "--rank", "0", "--json").lines[0]
    assert line.pop("time") > 0
    assert line == {"attempt": 1, "rank": 0, "text": "from 0 a"}
    assert at_home("logs", job, "--attempt", "2").err == f"{job} is succeeded and has written nothing.\n"


def test_a_job_that_is_not_there(at_home):
    found = at_home("status", "nobody-77")
    assert found.code == 1
    assert "nobody-77" in found.err
    assert "muster ls --all" in found.err


# --- stop and resume --------------------------------------------------------------------------------------------------
def test_stop_and_resume(at_home, live, waiting):
    assert at_home("stop", waiting, "--wait").out == f"{waiting} ended\n"
    assert live.job(waiting)["phase"] == "stopped"
    # Its phase as the answer has it: the next round may have begun to start it.
    again = rf"{waiting} is (queued|starting) again, from the beginning: it has no checkpoint\n"
    assert re.fullmatch(again, at_home("resume", waiting).out)
    until(lambda: live.job(waiting)["phase"] == "running", "the job to run again")
    found = at_home("stop", "nobody-77", waiting, "--force", "--wait", "--json")
    assert found.code == 1
    assert found.json["jobs"][0]["error"]["code"] == "not_found"
    assert found.json["jobs"][1]["phase"] == "stopped"
    assert "has ended already" in at_home("stop", waiting).err


def test_the_priority_of_a_job_that_is_not_over(at_home, live, waiting):
    assert at_home("priority", waiting, "low").out == f"{waiting} has the priority low\n"
    found = at_home("priority", waiting, "33", "--json")
    assert (found.code, found.json["jobs"][0]["priority"]) == (0, 33)
    assert live.job(waiting)["priority"] == 33
    for wrong in ("101", "lowest", "-1"):
        found = at_home("priority", waiting, wrong)
        assert found.code == 2
        assert "low, normal, high, urgent, or a whole number from 0 to 100" in found.err or wrong == "-1"
    with Client(home=live.home) as client:
        job = client.job(waiting)
        assert job.set_priority("high").priority == 75
        assert client.set_priority(waiting, 5).priority == 5
        client.stop(waiting, force=True)
        client.wait(waiting)
    found = at_home("priority", waiting, "low")
    assert (found.code, "has ended already" in found.err) == (1, True)


def test_resume_waits_for_a_job_that_is_stopping(at_home, live, tmp_path):
    """The job leaves when this test lets it, which is after `resume` has said that it waits."""
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    command = f"trap 'read x < {gate}; exit 0' TERM; echo begun; while true; do sleep 0.05; done"
    job = live.submit(command, name="slow-to-leave", stop_grace=600)["id"]
    until(lambda: "begun" in live.output(job), "the job's first line")
    assert at_home("stop", "slow-to-leave").out == f"{job} is stopping\n"
    late = at_home("resume", job, "--timeout", "0.2s")
    assert late.code == 1
    assert f"{job} is stopping; waiting until it has stopped, at most 0.2s" in late.err
    assert f"muster stop --force {job}" in late.err
    with Client(home=live.home) as to:
        resumed = to.resume("slow-to-leave", on_wait=lambda waited: gate.write_text("go\n"))
    assert resumed.id == job
    assert resumed.phase in ("queued", "starting")  # the next round may have come before the answer
    live.post(f"/v1/jobs/{job}/stop", {"force": True})
    live.wait(job)


def test_a_grace_that_is_no_duration_is_told_before_anything_is_stopped(at_home, live, waiting):
    found = at_home("stop", waiting, "--grace", "soon")
    assert found.code == 2
    assert "--grace: got 'soon'" in found.err
    assert live.job(waiting)["phase"] == "running"


def test_a_sweep_without_nodes_is_listed_explained_and_stopped(at_home, live, tmp_path):
    file = _job_file(tmp_path, "name: grid\nkind: sweep\nnum_nodes: 0\npurpose: three rates\n")
    assert at_home("submit", file, "--dry-run").code == 0
    made = at_home("submit", file, "--json").json["jobs"][0]
    assert (made["phase"], made["run"], made["num_nodes"], made["attempt"]) == ("running", "", 0, 0)
    row = at_home("ls", "--name", "grid").out.splitlines()[1].split()
    assert row[:5] == [made["id"], "running", "0", "-", "-"]
    shown = at_home("status", "grid").out
    assert "it holds no nodes" in shown
    assert "command" not in shown
    told = at_home("why", "grid").out
    assert "it holds no nodes and runs until it is ended" in told
    assert "queued" not in told
    assert at_home("logs", "grid").code == 0
    run = live.get(f"/v1/runs/{made['id']}")
    assert (run["phase"], run["started_at"]) == ("running", made["submitted_at"])
    assert at_home("stop", "grid", "--wait").out == f"{made['id']} ended\n"
    assert live.job(made["id"])["phase"] == "stopped"
    until(lambda: live.get(f"/v1/runs/{made['id']}")["phase"] == "stopped", "its run to end")
