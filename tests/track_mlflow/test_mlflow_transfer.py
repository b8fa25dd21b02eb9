"""Import from MLflow's folder, database and server, each twice; export to both, read back."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from live import LiveServer, live_server
from muster.client import Client
from muster.track.exporters.base import Facts, Medium, Series
from muster.track.mlflow.exporting import MlrunsExporter, export_server
from muster.track.mlflow.importing import import_all
from muster.track.mlflow.sources import FolderSource

RUN = "0123456789abcdef0123456789abcdef"
API = "/mlflow/api/2.0/mlflow/"
# MLflow's own store writes the database that is imported.
DATABASE = """
import sys, warnings
warnings.simplefilter("ignore")
from mlflow.entities import Metric, Param, RunTag
from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore
from mlflow.store.model_registry.sqlalchemy_store import SqlAlchemyStore as Registry
folder = sys.argv[1]
store = SqlAlchemyStore(f"sqlite:///{folder}/mlflow.db", f"{folder}/artifacts")
experiment = store.create_experiment("from-database")
run = store.create_run(experiment, "ada", 1000, [RunTag("team", "vision")], "trained").info
store.log_batch(run.run_id, [Metric("loss", v, 2000 + s, s) for s, v in enumerate((3.0, float("nan"), 1.0))],
                [Param("lr", "0.1")], [])
store.update_run_info(run.run_id, 3, 9000, None)
from pathlib import Path
place = Path(run.artifact_uri.removeprefix("file://")) / "plots"
place.mkdir(parents=True)
(place / "loss.txt").write_text("falling")
registry = Registry(f"sqlite:///{folder}/mlflow.db")
registry.create_registered_model("db-model", description="from there")
registry.create_model_version("db-model", run.artifact_uri, run.run_id)
registry.set_registered_model_alias("db-model", "champion", 1)
registry.transition_model_version_stage("db-model", 1, "Staging", False)
print(run.run_id)
"""


def write_mlruns(root: Path) -> None:
    """As MLflow's file store lays them out."""
    run = root / "7" / RUN
    for part in ("params", "tags", "metrics/nested", "artifacts/plots"):
        (run / part).mkdir(parents=True)
    (root / "7" / "meta.yaml").write_text("experiment_id: '7'\nname: from-folder\nlifecycle_stage: active\n")
    (run / "meta.yaml").write_text(
        f"run_id: {RUN}\nrun_name: kept\nuser_id: bob\nstatus: 4\nstart_time: 1000\nend_time: 5000\n"
        f"lifecycle_stage: active\nexperiment_id: '7'\n"
    )
    (run / "params" / "depth").write_text("4")
    (run / "tags" / "team").write_text("vision")
    (run / "metrics" / "loss").write_text("2000 0.5 0\n3000 nan 1\n4000 0.25 2\n")
    (run / "metrics" / "nested" / "acc").write_text("2000 1.0\n")
    (run / "artifacts" / "plots" / "a.txt").write_text("abc")


def get(server: LiveServer, path: str, **params: Any) -> Any:
    return server.get(API + path, **params)


def test_a_folder(muster: LiveServer, tmp_path: Path) -> None:
    write_mlruns(tmp_path / "mlruns")
    with Client(home=muster.home) as client:
        listed = import_all(client, str(tmp_path), dry_run=True)
        first = import_all(client, str(tmp_path / "mlruns"))
        again = import_all(client, str(tmp_path / "mlruns"))
    assert (listed["runs"], first["runs"], first["points"], first["problems"]) == (1, 1, 4, [])
    assert (again["unchanged"], again["points"]) == (1, 0)
    run = get(muster, "runs/get", run_id=RUN)["run"]
    assert (run["info"]["status"], run["info"]["end_time"], run["info"]["user_id"]) == ("FAILED", 5000, "bob")
    assert [one["value"] for one in get(muster, "metrics/get-history", run_id=RUN, metric_key="loss")["metrics"]] == [
        0.5,
        "NaN",
        0.25,
    ]
    assert {one["key"] for one in run["data"]["metrics"]} == {"loss", "nested/acc"}
    with Client(home=muster.home) as client:
        assert client.read_artifact(RUN, "plots/a.txt") == b"abc"
        assert client.run(RUN).raw["source"] == "import:mlflow"


def test_a_database(muster: LiveServer, tmp_path: Path) -> None:
    made = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", DATABASE, str(tmp_path)], capture_output=True, text=True, timeout=200
    )
    assert made.returncode == 0, made.stderr[-3000:]
    run = made.stdout.split()[-1]
    with Client(home=muster.home) as client:
        for _ in range(2):
            told = import_all(client, str(tmp_path / "mlflow.db"))
            assert (told["runs"], told["models"], told["problems"]) == (1, 1, [])
        assert client.read_artifact(run, "plots/loss.txt") == b"falling"
    found = get(muster, "runs/get", run_id=run)["run"]
    assert {one["key"]: one["value"] for one in found["data"]["params"]} == {"lr": "0.1"}
    assert len(get(muster, "metrics/get-history", run_id=run, metric_key="loss")["metrics"]) == 3
    model = muster.get("/v1/models/db-model")
    assert [(one["stage"], one["run"]) for one in model["versions"]] == [("staging", run)]
    assert model["aliases"] == {"champion": 1}


def test_a_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Muster itself speaks as MLflow's server does; its runs go into another project of it."""
    with live_server(tmp_path / "home") as muster:
        with muster.http() as http:
            number = http.post(f"{API}experiments/create", json={"name": "to-copy"}).json()["experiment_id"]
            run = http.post(f"{API}runs/create", json={"experiment_id": number, "run_name": "one"}).json()["run"][
                "info"
            ]["run_id"]
            body = {"run_id": run, "metrics": [{"key": "m", "value": 1.5, "timestamp": 7, "step": s} for s in range(3)]}
            http.post(f"{API}runs/log-batch", json=body)
            http.put(f"/mlflow/api/2.0/mlflow-artifacts/artifacts/{number}/{run}/artifacts/f", content=b"content")
            muster.post("/v1/projects", {"name": "copies"})
        monkeypatch.setenv("MLFLOW_TRACKING_TOKEN", muster.token)
        with Client(home=muster.home) as client:
            told = import_all(client, f"{muster.url}/mlflow", project="copies")
        assert told["runs"] >= 1
        copied = get(muster, "experiments/get-by-name", experiment_name="copies/to-copy")["experiment"]["experiment_id"]
        with muster.http() as http:
            runs = http.post(f"{API}runs/search", json={"experiment_ids": [copied]}).json()["runs"]
        assert [one["info"]["run_name"] for one in runs] == ["one"]
        copy = runs[0]["info"]["run_id"]
        assert copy != run
        assert len(get(muster, "metrics/get-history", run_id=copy, metric_key="m")["metrics"]) == 3
        with Client(home=muster.home) as client:
            assert client.read_artifact(copy, "f") == b"content"


class Given:
    """A run to export."""

    facts = Facts(
        "job-1", "default", "first", "ada", phase="succeeded", created_at=1.0, started_at=2.0, ended_at=3.0,
        params={"lr": "0.1"}, tags={"team": "x"},
    )  # fmt: skip

    def series(self, superseded: bool = False) -> list[Series]:
        steps, times = np.arange(3, dtype=np.int64), np.array([2.0, 2.5, 3.0])
        values, attempts = np.array([1.0, np.nan, np.inf]), np.ones(3, np.int32)
        return [
            Series("loss", None, False, steps, times, values, attempts),
            Series("cpu", 1, False, steps, times, values, attempts),
        ]

    def media(self) -> list[Medium]:
        return [Medium("text", "text", 1, 2.0, data={"a": 1})]


def test_export_to_a_folder(tmp_path: Path) -> None:
    written = list(MlrunsExporter().export([Given()], tmp_path / "mlruns" / "muster"))
    assert [(one.run, one.points, one.media) for one in written] == [("job-1", 6, 1)]
    source = FolderSource(tmp_path / "mlruns")
    assert [one["name"] for one in source.experiments()] == ["muster"]
    (run,) = source.runs("muster")
    assert (run["info"]["status"], run["info"]["run_name"], run["info"]["start_time"]) == ("FINISHED", "first", 2000)
    assert [one["key"] for one in run["data"]["metrics"]] == ["loss", "rank_1/cpu"]
    stamps = [(stamp, step, str(value)) for stamp, step, value in source.history("job-1", "loss")]
    assert stamps == [(2000, 0, "1.0"), (2500, 1, "nan"), (3000, 2, "inf")]
    assert [path for path, _ in source.artifacts(run)] == ["media/text-1-1-0"]


def test_export_to_a_server(muster: LiveServer) -> None:
    headers = {"Authorization": f"Bearer {muster.token}"}
    ((here, there),) = export_server([Given()], f"{muster.url}/mlflow", experiment="exported", headers=headers)
    assert here == "job-1"
    run = get(muster, "runs/get", run_id=there)["run"]
    assert {one["key"]: one["value"] for one in run["data"]["metrics"]} == {
        "loss": "Infinity",
        "rank_1/cpu": "Infinity",
    }
    assert run["info"]["status"] == "FINISHED"


def test_what_is_no_source(tmp_path: Path, muster: LiveServer) -> None:
    (tmp_path / "x.db").write_bytes(b"nothing")
    with Client(home=muster.home) as client:
        for source in ("/nowhere/mlruns", str(tmp_path), str(tmp_path / "x.db"), "http://127.0.0.1:9"):
            with pytest.raises(Exception, match=r"Name|Check"):
                import_all(client, source)


def test_the_address_is_told(muster: LiveServer) -> None:
    assert httpx.get(f"{muster.url}/mlflow/health", trust_env=False).text == "OK"
