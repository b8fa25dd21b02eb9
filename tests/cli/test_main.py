"""The command itself: its verbs, what it imports, and how anything that goes wrong is told."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys

import pytest

from muster.cli import jobs
from muster.cli.lazy import command_of
from muster.cli.main import VERBS
from muster.version import described

HEAVY = ("httpx", "pydantic", "yaml", "fastapi", "sqlalchemy", "rich.console", "muster.client", "muster.core.spec")


def _leaves(command, path):
    if hasattr(command, "commands"):
        verbs = getattr(command, "verbs", {})  # of which the commands are stand-ins
        for name, below in command.commands.items():
            yield from _leaves(command_of(verbs[name]) if name in verbs else below, (*path, name))
    else:
        yield path, command


@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: verb.name)
def test_every_verb_loads_and_has_help_and_json(verb, muster):
    command = command_of(verb)
    leaves = list(_leaves(command, (verb.name,)))
    for path, leaf in leaves:
        assert any("--json" in option.opts for option in leaf.params), path
        assert leaf.help, path
    assert muster(verb.name, "--help").code == 0


def test_the_list_of_verbs_names_them_all(muster):
    found = muster()
    assert found.code == 0
    assert all(f" {verb.name} " in found.out and verb.help[:40] in found.out for verb in VERBS)


@pytest.mark.parametrize("words", [["--version"], ["--version", "ls"]])
def test_the_version_is_told_without_importing_anything_heavy(words):
    code = (
        "import sys; from muster.cli.main import main; code = main(sys.argv[1:]);"
        f"print([name for name in {HEAVY} if name in sys.modules]); sys.exit(code)"
    )
    done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, timeout=180)
    assert done.stdout.splitlines() == [f"muster {described()}", "[]"]
    assert done.returncode == 0


def test_python_dash_m_is_the_same_command():
    done = subprocess.run([sys.executable, "-m", "muster", "--version"], capture_output=True, text=True, timeout=180)
    assert done.stdout == f"muster {described()}\n"


# --- errors -----------------------------------------------------------------------------------------------------------
def test_a_verb_that_does_not_exist_is_answered_with_one_that_does(muster):
    found = muster("lgos")
    assert found.code == 2
    assert "No such command 'lgos'. Did you mean 'logs'" in found.err
    assert found.out == ""


@pytest.mark.parametrize("words", [["ls", "--bogus", "--json"], ["logs", "--json"], ["ls", "--json", "--limit", "x"]])
def test_a_command_line_that_makes_no_sense_is_told_as_json_too(muster, words):
    found = muster(*words)
    assert found.code == 2
    assert found.json["error"]["code"] == "usage"
    assert found.json["error"]["hint"] == f"See `muster {words[0]} --help`."


def test_without_a_server_it_says_what_to_do(muster, tmp_path):
    found = muster("ls")
    assert found.code == 1
    assert f"No server is running for {tmp_path / 'no-server'}" in found.err
    assert "muster up -d" in found.err
    told = muster("ls", "--json")
    assert told.code == 1
    assert told.json["error"]["code"] == "unavailable"
    assert told.err == ""


MISTAKES = "name: Bad Name\nrun: 'true'\nnprok: 2\nmax_duration: soon\n"


def test_check_tells_all_mistakes_of_all_files_without_a_server(muster, tmp_path):
    for name, text in (("good.yaml", "name: good\nrun: 'true'\n"), ("bad.yaml", MISTAKES)):
        (tmp_path / name).write_text(text)
    found = muster("check", "good.yaml", "bad.yaml", "gone.yaml")
    assert found.code == 1
    assert found.out == "good.yaml is in order: good\n"
    assert "bad.yaml has 3 mistakes." in found.err
    assert all(f"{place}: got" in found.err for place in ("name (line 1)", "nprok (line 3)", "max_duration (line 4)"))
    assert "There is no job file gone.yaml." in found.err
    assert muster("check", "good.yaml").code == 0


def test_check_as_json_is_one_document(muster, tmp_path):
    for name, text in (("good.yaml", "name: good\nrun: 'true'\n"), ("bad.yaml", MISTAKES)):
        (tmp_path / name).write_text(text)
    found = muster("check", "--json", "good.yaml", "bad.yaml")
    good, bad = found.json["files"]
    assert found.code == 1
    assert found.err == ""
    assert good == {"file": "good.yaml", "ok": True, "name": "good"}
    assert (bad["file"], bad["ok"], len(bad["error"]["problems"])) == ("bad.yaml", False, 3)
    worse = muster("check", "--json", "good.yaml", "-o", "nproc=none")
    assert (worse.code, worse.json["files"][0]["error"]["code"]) == (1, "bad_spec")


@pytest.mark.parametrize(
    "words",
    [
        ("submit", "bad.yaml"),
        ("run", "bad.yaml"),
        ("run", "--max-duration", "soon", "--priority", "huge", "--name", "Bad Name", "--", "true"),
    ],
    ids=["submit", "run-file", "run-command"],
)
def test_mistakes_of_a_job_are_told_before_a_server_is_needed(muster, tmp_path, words):
    (tmp_path / "bad.yaml").write_text(MISTAKES)
    found = muster(*words)
    assert found.code == 1
    assert "has 3 mistakes." in found.err
    assert re.search(r"max_duration( \(line 4\))?: got 'soon'", found.err)


@pytest.mark.parametrize("words", [("submit", "good.yaml"), ("run", "good.yaml"), ("run", "--", "true")])
def test_a_job_without_mistakes_needs_a_server(muster, tmp_path, words):
    (tmp_path / "good.yaml").write_text("run: 'true'\n")
    assert "No server is running" in muster(*words).err


def test_json_among_the_words_of_a_job_is_not_ours(muster):
    found = muster("run", "--", "python", "train.py", "--json")
    assert found.code == 1
    assert found.out == ""
    assert muster("run", "python", "train.py", "--json").out == ""


def test_a_bug_of_ours_is_one_line_and_a_file(muster, monkeypatch, tmp_path):
    def broken():
        raise ZeroDivisionError("by zero")

    monkeypatch.setattr(jobs, "client", broken)
    found = muster("ls", "--user", "private")
    log = tmp_path / "no-server" / "crash.log"
    assert found.code == 1
    assert found.err.splitlines() == [
        "Muster failed: ZeroDivisionError: by zero",
        f"This is a bug of Muster's. Details are in {log}.",
    ]
    text = log.read_text()
    assert "in broken" in text
    assert "private" not in text
    assert log.stat().st_mode & 0o077 == 0
    assert muster("ls", "--json").json["error"]["code"] == "bug"
    assert log.read_text().count("ZeroDivisionError: by zero") == 2


def test_a_reader_that_has_enough_is_no_error(tmp_path):
    command = f"'{sys.executable}' -m muster schema | head -n 1; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=180)
    assert done.stdout.splitlines()[0] == "{"
    assert done.stderr == ""


# --- completion -------------------------------------------------------------------------------------------------------
def _complete(*words, home):
    env = {**os.environ, "_MUSTER_COMPLETE": "complete_bash", "COMP_WORDS": " ".join(words), "MUSTER_HOME": str(home)}
    env["COMP_CWORD"] = str(len(words) - 1)
    code = "from muster.cli.main import main; main([])"
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=180)
    assert done.stderr == ""
    return done.stdout.split()


def test_verbs_options_and_jobs_are_completed(live):
    job = live.submit("true", name="completed")
    assert _complete("muster", "st", home=live.home) == ["status", "stacks", "stop"]
    assert "--phase" in _complete("muster", "ls", "--p", home=live.home)
    assert _complete("muster", "queue", "sh", home=live.home) == ["show"]
    assert _complete("muster", "logs", "comple", home=live.home) == [job["id"]]
    assert _complete("muster", "nodes", "drain", "", home=live.home) == ["local-0"]


def test_completion_is_quiet_without_a_server(tmp_path):
    assert _complete("muster", "logs", "", home=tmp_path) == []


def test_the_schema_is_json(muster):
    assert json.loads(muster("schema").out) == muster("schema", "--json").json
    assert "run" in muster("schema").json["properties"]
