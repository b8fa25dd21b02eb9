"""A model of a real job on a real server: registered, downloaded with its statement, and verified without a server."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from live import LiveServer, until

PROGRAM = """
from pathlib import Path
from muster import runtime
Path("out").mkdir()
Path("out/model.bin").write_bytes(b"weights")
Path("out/config.json").write_text("{}")
runtime.artifact("out/model.bin", "final/model.bin", kind="model")
runtime.artifact("out/config.json", "final/config.json", kind="model")
"""


def muster(home: Path, *words: str) -> tuple[int, Any]:
    environment = {**os.environ, "MUSTER_HOME": str(home)}
    done = subprocess.run(
        [sys.executable, "-m", "muster", *words, "--json"], env=environment, capture_output=True, text=True, check=False
    )
    return done.returncode, json.loads(done.stdout or done.stderr)


@pytest.fixture(scope="module")
def trained(server: LiveServer, tmp_path_factory: pytest.TempPathFactory) -> str:
    workdir = tmp_path_factory.mktemp("work")
    (workdir / "train.py").write_text(PROGRAM)
    with server.http() as http:
        spec = {"name": "tiny", "run": "python train.py", "workdir": str(workdir)}
        job = str(http.post("/v1/jobs", json={"spec": spec}).json()["id"])
    server.wait(job, "succeeded")
    return job


def test_a_downloaded_model_is_verified_offline(server: LiveServer, trained: str, tmp_path: Path):
    home, folder, keys = server.home, tmp_path / "gpt", tmp_path / "keys.pem"
    code, made = muster(home, "models", "register", "gpt", trained, "--artifact", "final")
    assert (code, made["version"]) == (0, 1)
    with server.http() as http:
        path = "/v1/models/gpt/versions/1/statement"
        until(lambda: http.get(path).status_code == 200, "the statement")
        keys.write_text("".join(one["pem"] for one in http.get("/v1/keys").json()["keys"]))
    code, online = muster(home, "models", "verify", "gpt@1")
    assert (code, online["ok"], online["built"], online["run"]) == (0, True, True, trained)
    assert sorted(online["good"]) == ["config.json", "model.bin"]
    assert muster(home, "models", "download", "gpt/1", "--to", str(folder))[0] == 0

    nowhere = tmp_path / "no-server"
    offline = ("models", "verify", str(folder), "--key", str(keys))
    code, found = muster(nowhere, *offline)
    assert (code, found["ok"], found["ref"]) == (0, True, "model:gpt/1")
    (folder / "model.bin").write_bytes(b"Weights")
    (folder / "evil.py").write_text("")
    (folder / "config.json").unlink()
    code, found = muster(nowhere, *offline)
    named = (found["changed"], found["extra"], found["missing"])
    assert (code, *named) == (1, ["model.bin"], ["evil.py"], ["config.json"])


def test_a_replaced_file_is_found_online(server: LiveServer, trained: str):
    with server.http() as http:
        source = {"source": f"artifact:{trained}/final", "project": "default"}
        assert http.post("/v1/models/swapped/versions", json=source).status_code == 201
        until(lambda: http.get("/v1/models/swapped/versions/1/statement").status_code == 200, "the statement")
        put = f"/v1/runs/{trained}/artifacts/final/config.json"
        assert http.put(put, content=b"evil", params={"kind": "model"}).status_code == 201
    code, found = muster(server.home, "models", "verify", "swapped/1")
    assert (code, found["changed"]) == (1, ["config.json"])


def test_a_server_that_is_killed_signs_each_once(tmp_path: Path):
    server = LiveServer(tmp_path / "home")
    try:
        server.start()
        with server.http() as http:
            run = str(http.post("/v1/runs", json={"project": "default", "name": "x"}).json()["id"])
            for number in range(5):
                path = f"/v1/runs/{run}/artifacts/m{number}/x.pt"
                assert http.put(path, content=b"x", params={"kind": "model"}).status_code == 201
        server.kill()
        shutil.rmtree(tmp_path / "home" / "cache", ignore_errors=True)
        server.start()
        with server.http() as http:

            def made() -> list[Any]:
                return list(http.get(f"/v1/runs/{run}/statements").json()["statements"])

            until(lambda: len(made()) == 5, "the statements")
            keys = http.get("/v1/keys").json()["keys"]
            assert len(keys) == 1
            assert {one["key"] for one in made()} == {keys[0]["id"]}
    finally:
        server.stop()
