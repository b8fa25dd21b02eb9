"""MLflow over HTTP: who gets in, artifacts, and MLflow's own server and UI behind Muster's own answers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from live import LiveServer, stop_everything, until

API = "/api/2.0/mlflow/"


@pytest.fixture
def http(muster: LiveServer) -> Iterator[httpx.Client]:
    with httpx.Client(
        base_url=f"{muster.url}/mlflow", auth=("any", muster.token), timeout=180, trust_env=False
    ) as client:
        yield client


def new_run(http: httpx.Client, experiment: str = "0") -> str:
    made = http.post(f"{API}runs/create", json={"experiment_id": experiment})
    return str(made.json()["run"]["info"]["run_id"])


class TestTheDoor:
    def test_a_token_by_bearer_or_basic(self, muster: LiveServer, http: httpx.Client) -> None:
        where = f"{muster.url}/mlflow{API}experiments/get?experiment_id=0"
        assert http.get(f"{API}experiments/get", params={"experiment_id": "0"}).status_code == 200
        assert httpx.get(where, headers={"Authorization": f"Bearer {muster.token}"}, trust_env=False).status_code == 200
        for headers in ({}, {"Authorization": "Basic !!"}, {"Authorization": "Bearer mst_no_no"}):
            refused = httpx.get(where, headers=headers, trust_env=False)
            assert refused.status_code == 401
            assert refused.headers["www-authenticate"].startswith("Basic ")
            assert refused.json()["error_code"] == "UNAUTHENTICATED"

    def test_another_site_may_not_write(self, http: httpx.Client) -> None:
        body = {"experiment_id": "0"}
        other = http.post(f"{API}runs/create", json=body, headers={"Origin": "https://elsewhere.example"})
        assert (other.status_code, other.json()["error_code"]) == (403, "PERMISSION_DENIED")
        host = http.base_url.netloc.decode()
        assert http.post(f"{API}runs/create", json=body, headers={"Origin": f"http://{host}"}).status_code == 200

    def test_what_is_no_request(self, http: httpx.Client) -> None:
        json_type = {"Content-Type": "application/json"}
        for content, headers in ((b"{bad", json_type), (b"[1]", json_type), (b"{}", {"Content-Type": "text/plain"})):
            answer = http.post(f"{API}runs/create", content=content, headers=headers)
            assert answer.status_code == 400
        both = http.post(f"{API}runs/delete", json={"run_id": "a", "runId": "b"})
        assert "provide only one" in both.json()["message"]
        camel = http.get(f"{API}runs/get", params={"runId": new_run(http)})
        assert camel.status_code == 200

    def test_roles(self, muster: LiveServer, http: httpx.Client) -> None:
        run = new_run(http)
        muster.post("/v1/projects", {"name": "vision"})
        with muster.http() as own:
            assert own.put("/v1/projects/vision/members/eve", json={"role": "member"}).status_code < 300
        token = muster.post("/v1/tokens", {"name": "eve", "user": "eve", "role": "member"})["token"]
        with httpx.Client(base_url=f"{muster.url}/mlflow", auth=("eve", token), timeout=180, trust_env=False) as eve:
            assert eve.get(f"{API}runs/get", params={"run_id": run}).status_code == 404
            made = eve.post(f"{API}experiments/create", json={"name": "mine"}).json()["experiment_id"]
            assert [
                e["name"] for e in eve.post(f"{API}experiments/search", json={"max_results": 9}).json()["experiments"]
            ] == ["vision/mine"]
            put = eve.put(f"/api/2.0/mlflow-artifacts/artifacts/0/{run}/artifacts/x", content=b"x")
            assert put.status_code == 404
            traces = {"locations": [{"type": "MLFLOW_EXPERIMENT", "mlflow_experiment": {"experiment_id": made}}]}
            assert eve.post("/api/3.0/mlflow/traces/search", json=traces).status_code == 200
            secret = eve.get("/api/3.0/mlflow/gateway/secrets/list")
            assert secret.status_code == 404
            assert "administrators" in secret.json()["message"]


class TestArtifacts:
    def test_round_trip(self, http: httpx.Client) -> None:
        run = new_run(http)
        root = f"/api/2.0/mlflow-artifacts/artifacts/0/{run}/artifacts"
        content = bytes(range(256)) * 20_000
        assert http.put(f"{root}/a/b.bin", content=content).status_code == 200
        assert http.put(f"{root}/page.html", content=b"<script>").status_code == 200
        found = http.get(f"{root}/a/b.bin")
        assert found.content == content
        page = http.get("/get-artifact", params={"run_id": run, "path": "page.html"})
        assert page.headers["content-disposition"].startswith("attachment")
        assert page.headers["x-content-type-options"] == "nosniff"
        listed = http.get(f"{API}artifacts/list", params={"run_id": run}).json()
        assert listed["files"] == [
            {"path": "a", "is_dir": True},
            {"path": "page.html", "is_dir": False, "file_size": 8},
        ]
        level = http.get("/api/2.0/mlflow-artifacts/artifacts", params={"path": f"0/{run}/artifacts/a"}).json()
        assert level == {"files": [{"path": "b.bin", "is_dir": False, "file_size": len(content)}]}
        assert http.delete(f"{root}/a").status_code == 200
        assert http.get(f"{root}/a/b.bin").status_code == 404

    @pytest.mark.parametrize("path", ["../x", "..%2Fx", "a/../../x", "%2e%2e/x", "a\\b", "/etc/passwd", "..%252Fx"])
    def test_paths_that_lead_elsewhere(self, http: httpx.Client, path: str) -> None:
        run = new_run(http)
        listed = http.get(f"{API}artifacts/list", params={"run_id": run, "path": path})
        assert (listed.status_code, listed.json()["message"]) == (400, "Invalid path")
        answer = http.get("/get-artifact", params={"run_id": run, "path": path})
        assert answer.status_code == 400

    def test_the_server_reads_no_place_that_a_client_names(self, http: httpx.Client) -> None:
        made = http.post(f"{API}experiments/create", json={"name": "elsewhere", "artifact_location": "/etc"})
        assert made.status_code == 400
        assert "neither reads nor writes" in made.json()["message"]


class TestMlflowsOwn:
    def test_the_ui(self, muster: LiveServer, http: httpx.Client) -> None:
        assert http.get(f"{muster.url}/mlflow").headers["location"].endswith("/mlflow/")
        index = http.get("/")
        assert index.status_code == 200
        assert "static-files/" in index.text
        script = next(part.split('"')[0] for part in index.text.split('src="')[1:] if ".js" in part.split('"')[0])
        assert http.get(f"/{script.removeprefix('./').lstrip('/')}").status_code == 200
        found = http.post("/ajax-api/2.0/mlflow/experiments/search", json={"max_results": 100}).json()
        assert "Default" in [one["name"] for one in found["experiments"]]
        query = {"query": 'query { mlflowGetExperiment(input: {experimentId: "0"}) { experiment { name } } }'}
        answer = http.post("/graphql", json={**query, "operationName": None, "variables": {}})
        assert answer.json()["data"]["mlflowGetExperiment"]["experiment"]["name"] == "Default"

    def test_the_registry_is_the_records(self, muster: LiveServer, http: httpx.Client) -> None:
        run = new_run(http)
        assert http.post(f"{API}registered-models/create", json={"name": "gpt"}).status_code == 200
        assert http.post(f"{API}registered-models/create", json={"name": "gpt"}).status_code == 400
        version = {"name": "gpt", "source": f"runs:/{run}/model", "run_id": run}
        made = http.post(f"{API}model-versions/create", json=version).json()["model_version"]
        assert (made["version"], made["current_stage"], made["run_id"]) == ("1", "None", run)
        http.post(f"{API}registered-models/alias", json={"name": "gpt", "alias": "best", "version": "1"})
        stage = {"name": "gpt", "version": "1", "stage": "Production", "archive_existing_versions": True}
        moved = http.post(f"{API}model-versions/transition-stage", json=stage).json()["model_version"]
        assert (moved["current_stage"], moved["aliases"]) == ("Production", ["best"])
        found = muster.get("/v1/models/gpt")
        assert [(one["version"], one["stage"], one["run"]) for one in found["versions"]] == [(1, "production", run)]
        searched = http.get(f"{API}model-versions/search", params={"filter": f"run_id = '{run}'"}).json()
        assert [one["version"] for one in searched["model_versions"]] == ["1"]

    def test_without_mlflow(self, tmp_path: Path) -> None:
        """What Muster answers itself needs nothing of MLflow's; the rest says what to install."""
        hidden = tmp_path / "path"
        hidden.mkdir()
        (hidden / "sitecustomize.py").write_text(
            "import sys\n"
            "class Hide:\n"
            "    def find_spec(self, name, path=None, target=None):\n"
            "        if name.split('.')[0] == 'mlflow':\n"
            "            raise ModuleNotFoundError(f'No module named {name!r}', name=name)\n"
            "sys.meta_path.insert(0, Hide())\n"
        )
        server = LiveServer(tmp_path / "home", env={"PYTHONPATH": str(hidden)})
        server.start()
        try:
            with httpx.Client(
                base_url=f"{server.url}/mlflow", auth=("x", server.token), timeout=180, trust_env=False
            ) as http:
                run = new_run(http)
                http.post(f"{API}runs/log-metric", json={"run_id": run, "key": "m", "value": 1, "timestamp": 1})
                assert http.post(f"{API}runs/search", json={"experiment_ids": ["0"]}).json()["runs"][0]["data"][
                    "metrics"
                ]
                missing = http.get("/")
                assert missing.status_code == 501
                assert "pip install 'muster-ml[mlflow]'" in missing.json()["message"]
        finally:
            stop_everything(server)


def test_on_postgresql(tmp_path: Path, postgres_url: str) -> None:
    """What only MLflow has is in a schema of its own there."""
    server = LiveServer(tmp_path / "home", config=f'store_url = "{postgres_url}"\n', load="mlflow_imports")
    server.start()
    try:
        with httpx.Client(
            base_url=f"{server.url}/mlflow", auth=("x", server.token), timeout=180, trust_env=False
        ) as http:
            run = new_run(http)
            assert http.post(f"{API}registered-models/create", json={"name": "gpt"}).status_code == 200
            model = {"experiment_id": "0", "name": "m", "source_run_id": run}
            made = http.post("/api/2.0/mlflow/logged-models", json=model).json()["model"]["info"]
            point = {"key": "m", "value": 1.0, "timestamp": 1, "step": 0, "model_id": made["model_id"]}
            assert http.post(f"{API}runs/log-batch", json={"run_id": run, "metrics": [point]}).status_code == 200
            found = http.get(f"/api/2.0/mlflow/logged-models/{made['model_id']}").json()["model"]
            assert [one["value"] for one in found["data"]["metrics"]] == [1.0]
            assert (
                http.get(f"{API}runs/get", params={"run_id": run}).json()["run"]["data"]["metrics"][0]["value"] == 1.0
            )
    finally:
        stop_everything(server)


def test_a_jobs_run(muster: LiveServer, http: httpx.Client) -> None:
    """It is there under its id, and ends when its job ends, whatever a script in it tells MLflow."""
    job = muster.submit("true", name="plain")
    muster.wait(job["id"])

    def there() -> bool:
        return http.get(f"{API}runs/get", params={"run_id": job["id"]}).status_code == 200

    until(there, "the job's run")
    assert http.post(f"{API}runs/update", json={"run_id": job["id"], "status": "RUNNING"}).status_code == 200
    run = until(
        lambda: _finished(http.get(f"{API}runs/get", params={"run_id": job["id"]}).json()["run"]), "the run to end"
    )
    assert run["info"]["run_name"] == "plain"


def _finished(run: dict[str, dict[str, str]]) -> dict[str, dict[str, str]] | None:
    return run if run["info"]["status"] == "FINISHED" else None
