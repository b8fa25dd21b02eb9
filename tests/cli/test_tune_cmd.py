"""`muster tune` on a real server: starting and watching, steering, what came out, and what is refused."""

from __future__ import annotations

import csv
import io
import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import optuna
import pytest
import test_watch
import yaml
from optuna.storages.journal import JournalFileBackend

from live import LiveServer, live_server, until
from muster.api.studies import StudyStatus
from muster.cli.tune_file import study_values
from muster.cli.tune_live import screen, told
from muster.client import Client
from muster.tune.study_file import Site, parse_study

TRAIN = """
import os, time
from muster import runtime

lr = float(os.environ["LR"])
for step in range(1, 4):
    runtime.report(step=step, loss=(lr - 0.5) ** 2 + 1 / step)
while os.path.exists("wait") and not runtime.should_stop():
    time.sleep(0.02)
"""
STUDY = """
study: {name}
job: {{run: python train.py, resources: {{cpus: 1}}}}
space: {{lr: {{float: [0, 1]}}, kind: [a, b]}}
objective: {{minimize: loss}}
search: random
budget: {{trials: 3, parallel: 2}}
"""


@pytest.fixture
def study(tmp_path: Path) -> Any:
    """Writes a study file of that name, with changes, into the current folder."""
    (tmp_path / "train.py").write_text(TRAIN)

    def write(name: str, *changes: tuple[str, str], more: str = "", file: str = "study.yaml") -> str:
        text = STUDY.format(name=name) + more
        for old, new in changes:
            assert old in text
            text = text.replace(old, new)
        (tmp_path / file).write_text(text)
        return file

    return write


watched_terminal = test_watch.terminal


def _wait(live: LiveServer, study: str) -> dict[str, Any]:
    live.wait(study)
    found: dict[str, Any] = live.get(f"/v1/studies/{study}")
    return found


# --- starting and watching --------------------------------------------------------------------------------------------


def test_a_study_is_watched_to_its_end_in_lines_and_as_json(at_home: Any, study: Any) -> None:
    found = at_home("tune", study("lines"))
    assert found.code == 0, found.err
    lines = found.out.splitlines()
    id_ = lines[0].split()[1]
    assert lines[0] == f"started {id_}"
    assert sum("complete: " in line for line in lines) == 3
    assert any("; best loss " in line for line in lines)
    assert lines[-2].startswith(f"{id_} succeeded: 3 trials were tried; the best is trial ")
    assert "nothing seems to read `kind`: neither it nor KIND is in the command" in found.err
    found = at_home("tune", "--json", study("lines"))
    assert found.code == 0, found.err
    events = [one["event"] for one in found.lines]
    assert (events[0], events[-1]) == ("started", "end")
    assert set(events[1:-1]) == {"status"}
    assert found.lines[0]["notes"] != []
    assert (found.lines[-1]["phase"], found.lines[-1]["status"]["study"]["state"]) == ("succeeded", "ended")
    again = at_home("tune", "-d", "--json", "--key", "same-key", study("lines")).json
    assert at_home("tune", "-d", "--json", "--key", "same-key", study("lines")).json["id"] == again["id"]
    watched = at_home("tune", "status", "--watch", "--every", "0.1", again["id"])
    assert watched.code == 0
    assert "succeeded: 3 trials were tried" in watched.out


def test_ctrl_c_leaves_it_running_and_says_how_to_come_back(
    live: LiveServer,
    at_home: Any,
    study: Any,
    watched_terminal: Any,
    tmp_path: Path,
) -> None:
    (tmp_path / "wait").touch()
    shown = watched_terminal("tune", study("left"))
    shown.until("2 running")
    shown.until("tries lr=")
    shown.press(test_watch.CTRL_C)
    shown.until("goes on. Come back with `muster tune status --watch left-")
    assert shown.exit_code() == 130
    (one,) = [one for one in at_home("tune", "ls", "--json").json["studies"] if one["name"] == "left"]
    assert one["state"] == "running"
    command = [*test_watch.MUSTER, "tune", "status", "-w", "--every", "0.1", "left"]
    env = {**os.environ, "MUSTER_HOME": str(live.home)}
    watching = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert watching.stdout is not None
    assert "2 running" in watching.stdout.readline()
    watching.send_signal(signal.SIGINT)
    _, err = watching.communicate(timeout=180)
    assert "Come back with" in err
    assert watching.returncode == 130
    back = watched_terminal("tune", "status", "--watch", "left")
    back.until("2 running")
    (tmp_path / "wait").unlink()
    back.until("3 of 3 trials")
    back.until("succeeded: 3 trials were tried")
    assert back.exit_code() == 0


def test_a_dry_run_shows_the_study_one_trial_and_what_it_costs(
    muster: Any, study: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with live_server(tmp_path / "home") as server:  # one that knows of no run yet, so that the assumed time counts
        monkeypatch.setenv("MUSTER_HOME", str(server.home))
        _dry_run(muster, server, study)


def _dry_run(at_home: Any, live: LiveServer, study: Any) -> None:
    file = study("dry", ("float: [0, 1]", "float: [0, 1, 0.25]"), more="confirm: {top: 2, seeds: 3}\nstop: asha\n")
    before = len(at_home("tune", "ls", "-a", "--json").json["studies"])
    found = at_home("tune", "--dry-run", file)
    assert found.code == 0, found.err
    assert "2 parameters, 10 points" in found.out
    assert "variables  LR=0.5 KIND=b" in found.out
    assert "asks for   1 x 1 cpu" in found.out
    shown = found.out.partition("\n\n")[2].partition("\n\nOne of its trials")[0]
    site = Site(job=parse_study(shown, Site()).job)
    assert parse_study(shown, site).to_doc() == parse_study(yaml.safe_load(shown), site).to_doc()
    with Client(home=live.home) as client:
        client.set_prices("currency: USD\npools: {local: [{cpu: 1.5}]}\nassumed_run: 1h\n", correct=True)
        priced = at_home("tune", "--dry-run", file).out
        assert "about 1.50 USD" in priced
        assert "about 13.50 USD for 9 runs to their end; less as far as trials are stopped early" in priced
        document = at_home("tune", "--dry-run", "--json", "-o", "num_nodes=0", file)
        assert document.code == 1
        document = at_home("tune", "--dry-run", "--json", "-o", "resources.cpus=2", file).json
        assert (document["points"], document["runs"], document["ok"]) == (10, 9, True)
        assert document["cost"]["choices"][0]["p50"] == 3_000_000
        assert document["file"]["space"]["kind"] == ["a", "b"]
    refused = at_home("tune", "--dry-run", "-o", "resources.cpus=4000", file)
    assert "would not be accepted" in refused.err
    assert len(at_home("tune", "ls", "-a", "--json").json["studies"]) == before


def test_every_mistake_of_a_file_is_told(at_home: Any, study: Any, tmp_path: Path) -> None:
    bad = study(
        "Bad Name", ("minimize", "minimise"), ("trials: 3", "trials: x"), ("float: [0, 1]", "log: [0, 1]"),
        ("resources", "resorces"),
    )  # fmt: skip
    found = at_home("tune", bad)
    assert found.code == 1
    for where in ("study (line 2)", "job.resorces", "space.lr.log", "objective.minimise", "budget.trials"):
        assert f"  {where}" in found.err
    document = at_home("tune", "--json", bad).json["error"]
    assert document["code"] == "bad_spec"
    assert len(document["problems"]) == 6
    (tmp_path / "broken.yaml").write_text("study: [\n")
    assert "text that YAML can't read" in at_home("tune", "broken.yaml").err
    assert "There is no study file nowhere.yaml." in at_home("tune", "nowhere.yaml").err
    wrong = at_home("tune", "stauts")
    assert (wrong.code, "Did you mean `status`?" in wrong.err) == (2, True)
    assert "Start it with `muster tune study.yaml`" in at_home("submit", study("no-job")).err
    (tmp_path / "outside.yaml").write_text("space: {x: [1, 2]}\nobjective: {minimize: loss}\nsearch: random\n")
    assert at_home("tune", "outside.yaml", "-o", "num_nodes=2").code == 2
    assert at_home("tune").code == 0  # lists
    assert "Type `muster tune FILE`" in at_home("sweep", "x").err


def test_an_objective_that_is_never_reported_is_said_after_the_first_trial(at_home: Any, study: Any) -> None:
    found = at_home("tune", study("missing", ("loss", "val_loss"), ("parallel: 2", "parallel: 1")))
    assert found.code == 1
    assert "trial 0 ended, and never reported val_loss: it reported loss" in found.out
    assert "trial 1" not in found.out


# --- looking, steering, and what came out -----------------------------------------------------------------------------


def test_a_study_is_stopped_resumed_extended_changed_and_promoted(
    at_home: Any, live: LiveServer, study: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "wait").touch()
    file = study("steered", more="confirm: {top: 1, seeds: 2}\n")
    id_ = at_home("tune", "-d", "--json", file).json["id"]
    until(lambda: len(at_home("tune", "trials", id_, "--state", "running", "--json").json["trials"]) == 2, "two")
    assert at_home("tune", "enqueue", "steered", "lr=0.5", "kind=a").out.strip() == f"{id_} tries lr=0.5, kind=a next"
    assert "expected a value of every parameter" in at_home("tune", "enqueue", id_, "lr=2").err
    assert at_home("tune", "enqueue", id_, "lr").code == 2
    for words, said in (
        (("ls",), f"{id_} [^]*running[^]*2/3 trials"), (("status", id_), "2 running"), (("why", id_), "it is a study"),
        (("logs", id_), "is a study, whose trials write"), (("status", f"{id_}[0]"), f"0 of {id_}, running"),
    ):  # fmt: skip
        found = at_home(*words)
        assert all(part in found.out + found.err for part in said.split("[^]*")), (words, found.out, found.err)
    assert at_home("status", "--json", id_).json["study"]["study"]["id"] == id_
    assert at_home("stop", id_).code == 0  # as a job
    until(lambda: live.get(f"/v1/studies/{id_}")["study"]["state"] == "ended", "its end")
    assert {one["state"] for one in at_home("tune", "trials", id_, "--json").json["trials"]} == {"paused"}
    (tmp_path / "wait").unlink()
    assert f"{id_} goes on" in at_home("resume", id_).out  # as a job
    assert _wait(live, id_)["study"]["limits"]["trials"]["used"] == 3
    extended = at_home("tune", "extend", "steered", "--trials", "+2", "--parallel", "1")
    assert "trials: 3 → 5" in extended.out
    assert "parallel: 2 → 1" in extended.out
    found = _wait(live, id_)
    assert found["study"]["limits"]["trials"]["used"] == 5
    assert found["best"]["params"] == {"lr": 0.5, "kind": "a"}
    assert at_home("tune", "extend", id_, "--trials", "many").code == 2
    assert at_home("tune", "extend", id_).code == 1

    narrower = ("float: [0, 1]", "float: [0, 0.9]"), ("trials: 3, parallel: 2", "trials: 5")
    changed = study("steered", *narrower, more="confirm: {top: 1, seeds: 2}\n", file="changed.yaml")
    seen = at_home("tune", "change", "--check", changed)
    assert "space.lr: 0 to 1 → 0 to 0.9" in seen.out
    assert "in force" not in seen.out
    assert "Nobody can be asked here" in at_home("tune", "change", changed).err
    assert "in force" in at_home("tune", "change", "--yes", changed, id_).out
    _wait(live, id_)
    assert "Nothing is different" in at_home("tune", "change", "--yes", changed).err
    other = study("steered", ("minimize: loss", "maximize: loss"), file="other.yaml")
    assert "can't be changed" in at_home("tune", "change", "--yes", other).err

    best = at_home("tune", "best", "steered")
    assert "lr = 0.5" in best.out
    assert "with other seeds: trial" in best.out
    assert at_home("tune", "best", "--json", "steered").json["best"]["params"]["lr"] == 0.5
    (tmp_path / "winner.yaml").write_text(at_home("tune", "best", "--job", "steered").out)
    alone = at_home("submit", "--json", "winner.yaml").json["jobs"][0]
    promoted = at_home("tune", "promote", "steered", "-o", "name=bigger", "-o", "envs.SCALE=4", "--json").json
    for job in (alone, promoted):
        assert live.wait(job["id"])["phase"] == "succeeded"
        assert 'MUSTER_PARAMS=\'{"lr": 0.5, "kind": "a"}\'' in job["run"]
        assert live.metric(job["id"], "loss")[1][1][-1] == pytest.approx(1 / 3)
    assert promoted["tags"] == {"study": id_, "trial": str(found["best"]["number"]), "held_up": "unclear"}
    assert "over 2 seeds" in promoted["purpose"]
    assert "are not confirmed: trial 0 not" in at_home("tune", "promote", "steered", "--trial", "0").err
    for words in (("stop", id_), ("resume", "nobody")):
        assert at_home("tune", *words).code == 1
        assert "error" in at_home("tune", *words, "--json").json["studies"][0]
    kinds = [one["kind"] for one in at_home("events", "--job", id_, "--all", "--json").json["events"]]
    assert {"study.started", "study.changed", "study.enqueued", "study.stopped", "study.ended"} < set(kinds)
    assert "changed the study: trials: 3 → 5" in at_home("events", "--job", id_, "--all").out


def test_trials_are_sorted_filtered_and_exported(at_home: Any, live: LiveServer, study: Any, tmp_path: Path) -> None:
    id_ = at_home("tune", "-d", "--json", study("listed")).json["id"]
    _wait(live, id_)
    best, *others = at_home("tune", "trials", id_, "--sort", "rank", "--json").json["trials"]
    assert all(best["values"] <= one["values"] for one in others)
    by_lr = at_home("tune", "trials", id_, "--sort", "-lr", "-n", "2", "--json").json["trials"]
    assert by_lr[0]["params"]["lr"] >= by_lr[1]["params"]["lr"]
    table = at_home("tune", "trials", id_).out
    assert table.split()[:2] == ["trial", "state"]
    assert f"lr={best['params']['lr']:.4g}" in table
    assert "has no trials that are failed" in at_home("tune", "trials", id_, "--state", "failed").err
    for wrong in (("--state", "done"), ("--sort", "speed"), ("--csv", "--json")):
        assert at_home("tune", "trials", id_, *wrong).code == 2
    rows = list(csv.DictReader(io.StringIO(at_home("tune", "export", id_).out)))
    assert [row["number"] for row in rows] == ["0", "1", "2"]
    assert float(rows[best["number"]]["metrics.loss"]) == best["values"][0]
    assert float(rows[best["number"]]["params.lr"]) == best["params"]["lr"]
    assert at_home("tune", "export", id_, "all.json").code == 0
    written = json.loads((tmp_path / "all.json").read_text())
    assert written["file"] == (tmp_path / "study.yaml").read_text()
    assert len(written["trials"]) == 3
    assert at_home("tune", "export", id_, "all.csv").code == 0
    assert list(csv.DictReader(io.StringIO((tmp_path / "all.csv").read_text()))) == rows
    assert at_home("tune", "export", id_, "nowhere/all.csv").code == 1
    for storage in ("trials.db", "journal.log"):
        told = at_home("tune", "export", id_, "--to", storage, "--json")
        assert told.json == {"study": id_, "storage": storage, "name": id_}, told.err
    kept = optuna.load_study(study_name=id_, storage=f"sqlite:///{tmp_path}/trials.db")
    assert (kept.best_value, kept.best_params) == (best["values"][0], best["params"])
    journal = optuna.storages.JournalStorage(JournalFileBackend(str(tmp_path / "journal.log")))
    assert len(optuna.load_study(study_name=id_, storage=journal).trials) == 3
    assert "has a study" in at_home("tune", "export", id_, "--to", "trials.db").err
    assert at_home("tune", "export", id_, "x.csv", "--to", "trials.db").code == 2
    said = at_home("tune", "report", id_).out
    assert f"{best['number']}  complete" in said
    assert at_home("tune", "report", id_, "--html", "report.html").code == 0
    assert (tmp_path / "report.html").read_text().startswith("<!doctype html>")
    assert at_home("tune", "report", id_, "--json").json["sample"]["trials"] == 3
    assert at_home("tune", "status", id_, "--json").json["trials"] == 3
    assert at_home("tune", "status", f"{id_}[1]", "--json").json["study"]["id"] == id_
    assert "ended" in at_home("tune", "status", id_).out
    listed = at_home("tune", "ls", "-a").out
    assert f"{id_} " in listed
    assert "3/3" in listed
    assert at_home("tune", "status", "nobody").code == 1
    assert at_home("tune", "best", "nobody", "--json").json["error"]["code"] == "not_found"


# --- without a server -------------------------------------------------------------------------------------------------


def test_the_canonical_form_is_a_study_file_that_says_the_same() -> None:
    text = """
    study: all-of-it
    space:
      model: {choice: [deep, "64"]}
      lr: {log: [1e-5, 1e-2]}
      depth: {int: [4, 24, 4], when: "model == 'deep' or lr > 0.001"}
      width: {int_log: [16, 1024]}
      dropout: {float: [0, 0.5, 0.1]}
      epochs: 10
    objective: [{minimize: loss}, {maximize: accuracy, take: best}]
    constraints: ["memory < 70e9"]
    params: {arguments: "{name}={value}"}
    search: random
    stop: {rule: {when: "value > 2", every: 3}}
    budget: {trials: 200, parallel: 16, cost: 300.50 USD, until: 2 days}
    confirm: {top: 3, seeds: 5}
    replicates: 2
    worth: {0.01: 100 USD}
    warm_start: 'runs where tags.task = "x"'
    widen: 2
    seed: 7
    """
    doc = parse_study(text, Site()).to_doc()
    again = yaml.safe_dump(study_values(doc, "USD"), sort_keys=False)
    assert parse_study(again, Site()).to_doc() == doc


def _event(kind: str, **data: Any) -> Any:
    return {
        "seq": 1,
        "time": 0.0,
        "kind": kind,
        "actor": "muster",
        "project": "p",
        "job": "lr-1",
        "attempt": 0,
        "data": data,
    }


def test_trials_that_end_alike_share_a_line() -> None:
    over = [
        _event("trial.ended", number=n, outcome="stopped", values=[0.5], note="the study is over") for n in range(9)
    ]
    done = [_event("trial.ended", number=n, outcome="complete", values=[0.1 * n], note="") for n in range(9, 14)]
    memory = _event("trial.ended", number=20, outcome="infeasible", values=None, note="a device ran out of memory")
    lines = [line.plain for line in told([memory, *over, *done])]
    assert lines[0] == "trial 20 infeasible: a device ran out of memory"
    assert lines[1] == "9 trials stopped, 0 to 8: the study is over"
    assert lines[2:] == [f"trial {n} complete: {0.1 * n:.5g}" for n in range(9, 14)]


def test_the_picture_fits_a_narrow_terminal(at_home: Any, live: LiveServer, study: Any) -> None:
    from rich.console import Console  # noqa: PLC0415

    id_ = at_home("tune", "-d", "--json", study("narrow")).json["id"]
    found: StudyStatus = _wait(live, id_)  # type: ignore[assignment]
    for width in (40, 60, 120):
        console = Console(width=width, file=io.StringIO(), force_terminal=True)
        note = "x" * 200
        console.print(screen(found, [_event("trial.promoted", number=3, note=note)], width, linked=False))
        assert isinstance(console.file, io.StringIO)
        shown = console.file.getvalue()
        assert "server away, retrying" in shown
        assert "3 of 3 trials" in shown
