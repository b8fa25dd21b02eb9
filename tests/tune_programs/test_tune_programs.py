"""Programs of Ray Tune and HyperOpt, as jobs and alone: their trials are runs below theirs, nested ones in MLflow."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mlflow
import pytest

from components import require
from live import LiveServer, live_server, until
from muster.core.parse import parse_job

ROOT = Path(__file__).parents[2]
HYPEROPT = ROOT / ".venv" / "hyperopt"
TRIALS = {"tune_ray": 4, "tune_hyperopt": 12}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    with live_server(tmp_path_factory.mktemp("programs")) as found:
        yield found


def environment(name: str) -> dict[str, str]:
    if name == "tune_hyperopt":
        require("HyperOpt", HYPEROPT.exists(), "Install it: make .venv/.hyperopt.")
        return {"PYTHONPATH": str(HYPEROPT), "PYTHONWARNINGS": "ignore"}
    return {"RAY_USAGE_STATS_ENABLED": "0", "RAY_AUTH_MODE": "disabled", "TRIALS": str(TRIALS[name])}


def copied(name: str, folder: Path) -> Path:
    shutil.copytree(ROOT / "examples" / name, folder / name)
    return folder / name


def trials_of(server: LiveServer, parent: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = server.post("/v1/runs/search", {"query": f'parent = "{parent}"'})["runs"]
    return found


@pytest.fixture(scope="module", params=sorted(TRIALS))
def job(request: pytest.FixtureRequest, server: LiveServer, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Its id, when it has ended."""
    name = request.param
    folder = copied(name, tmp_path_factory.mktemp("example"))
    spec = parse_job((folder / "job.yaml").read_text(), source="job.yaml")
    command = spec.run.replace("python ", f"{sys.executable} ")
    made = server.submit(command, name=spec.name, workdir=str(folder), envs=environment(name))["id"]
    assert server.wait(made)["phase"] == "succeeded", server.output(made)
    return str(made)


def test_the_trials_of_a_job_are_runs_below_its_run(server: LiveServer, job: str) -> None:
    trials = trials_of(server, job)
    assert len(trials) == TRIALS[server.job(job)["name"].replace("-", "_")]
    for one in trials:
        assert (one["phase"], one["project"]) == ("succeeded", "default")
        assert 1e-4 <= float(one["params"]["lr"]) <= 1e-1
        assert one["params"]["width"] in ("16", "32", "64")
        assert isinstance(one["metrics"]["loss"], float)


def test_mlflow_shows_them_as_nested_runs(server: LiveServer, job: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_TOKEN", server.token)
    client = mlflow.MlflowClient(f"{server.url}/mlflow")
    experiment = client.get_run(job).info.experiment_id
    nested = client.search_runs([experiment], f"tags.mlflow.parentRunId = '{job}'", max_results=100)
    assert {one.info.run_id for one in nested} == {one["id"] for one in trials_of(server, job)}
    one = nested[0]
    assert one.data.tags["mlflow.parentRunId"] == job
    assert one.info.status == "FINISHED"
    history = client.get_metric_history(one.info.run_id, "loss")
    assert len(history) >= 4
    assert history[-1].value == one.data.metrics["loss"]


@pytest.mark.parametrize("name", sorted(TRIALS))
def test_alone_it_opens_a_run_for_them(server: LiveServer, name: str, tmp_path: Path) -> None:
    folder, home = copied(name, tmp_path), tmp_path / "home"
    env = {key: value for key, value in os.environ.items() if not key.startswith("MUSTER_")} | environment(name)
    env |= {"MUSTER_HOME": str(home), "MUSTER_URL": server.url, "MUSTER_TOKEN": server.token}
    done = subprocess.run(
        [sys.executable, "search.py"], cwd=folder, env=env, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr[-3000:]
    wanted = "ray-tune" if name == "tune_ray" else "hyperopt"

    def parent() -> dict[str, Any] | None:
        found = server.post("/v1/runs/search", {"query": f'name = "{wanted}" and phase = "succeeded"'})["runs"]
        return found[0] if found else None

    found = until(parent, "the run of the script")
    assert found is not None
    trials = trials_of(server, found["id"])
    assert len(trials) == TRIALS[name]
    assert {one["phase"] for one in trials} == {"succeeded"}
