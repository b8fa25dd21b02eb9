"""Scripts, Optuna's command and its dashboard, which have never heard of Muster, with `muster://` as their storage."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import httpx
import optuna
import pytest
import sqlalchemy
from optuna.storages import RDBStorage

from live import LiveServer, until
from muster.core.errors import ConfigError, NotFound

SCRIPT = """
import optuna

def objective(trial):
    return trial.suggest_float("x", -1, 1) ** 2 + trial.suggest_int("n", 1, 3)

study = optuna.create_study(storage="muster://", study_name="script", load_if_exists=True)
study.optimize(objective, n_trials=3)
"""
TOOLS = Path(sys.executable).parent


def call(*words: str) -> str:
    return subprocess.run(words, check=True, capture_output=True, text=True, timeout=180).stdout


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("script") / "search.py"
    place.write_text(SCRIPT)
    return place


def test_a_script_that_runs_twice_goes_on_with_its_study(script: Path) -> None:
    before = len(_study())
    for _ in range(2):
        call(sys.executable, "-W", "error", str(script))
    assert len(_study()) == before + 6


def test_a_job_is_given_the_address_and_a_token(server: LiveServer, script: Path) -> None:
    before = len(_study())
    with server.http() as http:
        assert http.put("/v1/projects/default/secrets/TUNE", json={"value": server.token}).status_code < 300
    command = f"MUSTER_URL={server.url} MUSTER_TOKEN=$TUNE {sys.executable} {script}"
    job = server.submit(command, secrets=["TUNE"])["id"]
    assert server.wait(job)["phase"] == "succeeded", server.output(job)
    assert len(_study()) == before + 3


def test_the_command_of_optuna(script: Path) -> None:
    call(sys.executable, str(script))
    names = call(str(TOOLS / "optuna"), "studies", "--storage", "muster://", "-f", "json")
    assert '"script"' in names
    best = call(str(TOOLS / "optuna"), "best-trial", "--storage", "muster://", "--study-name", "script", "-f", "json")
    assert f'"value": {min(one.value for one in _study())}' in best
    call(str(TOOLS / "optuna"), "create-study", "--storage", "muster://", "--study-name", "made")
    call(str(TOOLS / "optuna"), "delete-study", "--storage", "muster://", "--study-name", "made")
    call(str(TOOLS / "optuna"), "storage", "upgrade", "--storage", "muster://")


def test_the_dashboard_of_optuna(script: Path, tmp_path: Path) -> None:
    call(sys.executable, str(script))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    # With its own server: Gunicorn writes into the home folder.
    words = [str(TOOLS / "optuna-dashboard"), "muster://", "--port", str(port), "--server", "wsgiref"]
    with (tmp_path / "log").open("wb") as log, subprocess.Popen(words, stdout=log, stderr=log) as dashboard:
        try:
            with httpx.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False, timeout=60) as http:
                until(lambda: _answers(http), "the dashboard")
                (summary,) = [
                    one for one in http.get("/api/studies").json()["study_summaries"] if one["study_name"] == "script"
                ]
                detail = http.get(f"/api/studies/{summary['study_id']}", params={"after": 0}).json()
                assert len(detail["trials"]) == len(_study())
                note = {"body": "looked at", "version": 1}
                assert http.put(f"/api/studies/{summary['study_id']}/note", json=note).status_code < 300
        finally:
            dashboard.terminate()
    storage = optuna.storages.get_storage("muster://")
    assert "looked at" in str(storage.get_study_system_attrs(storage.get_study_id_from_name("script")))


def test_what_is_wrong_with_an_address_is_said() -> None:
    with pytest.raises(ConfigError, match="has projct"):
        optuna.create_study(storage="muster://?projct=vision")
    with pytest.raises(NotFound, match="no project 'nowhere'"):
        optuna.create_study(storage="muster://?project=nowhere")
    with pytest.raises(ConfigError, match="muster:// is no database"):
        sqlalchemy.create_engine("muster://")
    with pytest.warns(optuna.exceptions.ExperimentalWarning), pytest.raises(ConfigError, match="no heartbeats"):
        RDBStorage("muster://", heartbeat_interval=60)
    with pytest.raises(ConfigError, match="has no engine"):
        RDBStorage("muster://", engine_kwargs={"pool_size": 20})


def test_nothing_of_optuna_is_imported_before_it_is_used() -> None:
    asked = (
        "import sys, muster, muster.client.client, muster.cli.main, muster.server.app; print('optuna' in sys.modules)"
    )
    assert call(sys.executable, "-c", asked).strip() == "False"


def _study() -> list[optuna.trial.FrozenTrial]:
    study = optuna.create_study(storage="muster://", study_name="script", load_if_exists=True)
    return study.trials


def _answers(http: httpx.Client) -> bool:
    try:
        return http.get("/api/meta").status_code == 200
    except httpx.TransportError:
        return False
