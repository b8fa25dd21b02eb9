"""`muster tune import` into a real server, and what MLflow's client and queries see of it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import optuna
import pytest
from workers_kit import open_named

import muster
from live import LiveServer, call_muster
from muster.client import Client
from transfer_kit import FIXTURES

RAY = FIXTURES / "ray-tune-2.60"


def tune_import(*words: str, fails: bool = False) -> Any:
    done = call_muster("tune", "import", *words, "--json")
    assert done.returncode == int(fails), done.stdout + done.stderr
    return json.loads(done.stdout)


@pytest.fixture
def client() -> Iterator[Client]:
    with muster.Client() as made:
        yield made


def test_a_study_on_this_server_becomes_runs(client: Client) -> None:
    uri = "muster://?journal=imported"
    study = open_named("search", uri)()
    study.set_user_attr("team", "blue")

    def objective(trial: optuna.Trial) -> float:
        worse = 10 if trial.number == 2 else 0  # what is pruned is never the best
        value = trial.suggest_float("lr", 1e-5, 1e-1, log=True) + trial.suggest_int("depth", 1, 4) + worse
        for step in range(4):
            trial.report(value + step, step)
            if trial.number == 2 and step == 1:
                raise optuna.TrialPruned
        return value

    study.optimize(objective, n_trials=5)
    made = tune_import(uri)["runs"]
    assert [one["new"] for one in made] == [True] * 6
    head = client.run(made[0]["id"]).raw
    assert (head["name"], head["source"], head["phase"]) == ("search", "import:optuna", "succeeded")
    assert head["tags"]["team"] == "blue"
    trials = client.runs(f'parent = "{made[0]["id"]}"', sort="created")
    assert [one.raw["name"] for one in trials] == [f"search[{number}]" for number in range(5)]
    assert [one.raw["phase"] for one in trials] == ["succeeded", "succeeded", "stopped", "succeeded", "succeeded"]
    found = client.run(trials[0].raw["id"]).raw
    first = study.trials[0]
    assert float(found["params"]["lr"]) == first.params["lr"]
    assert found["params"]["depth"] == str(first.params["depth"])
    assert first.datetime_start is not None
    assert found["started_at"] == pytest.approx(first.datetime_start.timestamp(), abs=1e-3)
    assert found["summaries"]["value"]["last"] == first.value
    assert found["summaries"]["value"]["points"] == 5  # what was reported, and the value that is none of it
    best = client.runs(f'parent = "{made[0]["id"]}" and params.depth <= 4', sort="metrics.value", limit=1)
    assert best[0].raw["name"] == f"search[{study.best_trial.number}]"

    assert [one["new"] for one in tune_import(uri)["runs"]] == [False] * 6
    study.optimize(objective, n_trials=1)
    again = tune_import(uri)["runs"]
    assert [one["id"] for one in again[:6]] == [one["id"] for one in made]
    assert [one["new"] for one in again] == [True] + [False] * 5 + [True]  # the study, and its sixth trial
    assert len(client.runs(f'parent = "{made[0]["id"]}"')) == 6


def test_an_experiment_of_ray_becomes_runs_once(client: Client, tmp_path: Path) -> None:
    shutil.copytree(RAY, tmp_path / "ray")
    for folder in (tmp_path / "ray" / "exp").glob("f_*"):  # as Ray leaves it: with event files of the same curves
        (folder / "events.out.tfevents.1.host").write_bytes(b"")
    made = tune_import(str(tmp_path / "ray"))["runs"]
    assert len(made) == 5
    trials = client.runs(f'parent = "{made[0]["id"]}" and params.bad = "False"', sort="metrics.loss")
    assert [one.raw["params"]["lr"] for one in trials] == ["0.1", "0.2"]
    done = call_muster("runs", "import", str(tmp_path / "ray"), "--json")
    assert [(one["id"], one["new"]) for one in json.loads(done.stdout)["runs"]] == [(one["id"], False) for one in made]


def test_a_trial_does_not_go_without_its_study(server: LiveServer, tmp_path: Path) -> None:
    with server.http() as http:
        body = {"tool": "optuna", "key": "k/1", "parent": "k", "project": "default", "created_at": 1.0,
                "fingerprint": "0" * 64}  # fmt: skip
        assert http.post("/v1/runs/import", json=body).status_code == 404
        head = {**body, "key": "k", "parent": ""}
        run = http.post("/v1/runs/import", json=head).json()["id"]
        below = http.post("/v1/runs/import", json=body).json()["id"]
        assert http.get(f"/v1/runs/{below}").json()["parent"] == run


def test_the_lines_of_the_command(tmp_path: Path) -> None:
    done = call_muster("tune", "import", str(RAY), "--project", "nowhere")
    assert done.returncode == 1
    assert done.stderr.count("no project 'nowhere'") == 1
    done = call_muster("tune", "import", str(RAY), "--dry-run")
    assert done.stdout.count("f_7ea50") >= 4
    assert "holds no study" in call_muster("tune", "import", str(tmp_path)).stderr
    assert "does not exist" in call_muster("tune", "import", str(tmp_path / "x")).stderr
    assert "read from a folder" in call_muster("tune", "import", "sqlite:///x.db", "--from", "ray-tune").stderr
    assert "can't be read" in call_muster("tune", "import", f"sqlite:///{tmp_path}/no/x.db").stderr
    assert "4 trials" in call_muster("tune", "import", str(RAY)).stdout


def test_journals_are_listed_and_deleted() -> None:
    open_named("x", "muster://?journal=listed")()
    assert "listed" in call_muster("tune", "journals").stdout
    assert "listed" in [one["name"] for one in json.loads(call_muster("tune", "journals", "--json").stdout)["journals"]]
    assert "Deleted" in call_muster("tune", "journals", "--delete", "listed").stdout
    assert "listed" not in call_muster("tune", "journals").stdout
    assert "no Optuna journal" in call_muster("tune", "journals", "--delete", "listed").stderr
