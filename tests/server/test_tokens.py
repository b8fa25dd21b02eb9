"""Tokens are never stronger than their maker, and end with what they were given for."""

from __future__ import annotations

import uuid
from typing import Any

import httpx
import pytest

from live import LiveServer, stop_everything, until
from muster.control.secrets import load_keyring
from muster.wire import Batch, Piece, Reply, WorkerExit

OK = WorkerExit("succeeded", "completed", "", 1000.0)


def new_user(server: LiveServer, user: str, **roles: str) -> str:
    with server.http() as http:
        for project, role in roles.items():
            http.post("/v1/projects", json={"name": project})
            assert http.put(f"/v1/projects/{project}/members/{user}", json={"role": role}).status_code == 200
        made = http.post("/v1/tokens", json={"user": user, "name": "test"})
    assert made.status_code == 201
    return str(made.json()["token"])


def test_a_capped_token_revokes_no_stronger_one_of_its_user(server: LiveServer) -> None:
    strong = new_user(server, "stella", keys="admin")
    with server.http(strong) as http:
        weak = http.post("/v1/tokens", json={"role": "viewer"}).json()
        other = http.post("/v1/tokens", json={"role": "viewer"}).json()
    with server.http(weak["token"]) as http:
        refused = http.delete(f"/v1/tokens/{strong.split('_')[1]}")
        assert refused.status_code == 403
        assert "allows more" in refused.json()["error"]["message"]
        assert http.delete(f"/v1/tokens/{other['id']}").status_code == 200
        assert http.delete(f"/v1/tokens/{weak['id']}").status_code == 200
    with server.http(strong) as http:
        assert http.get("/v1/whoami").status_code == 200


def test_a_token_outlives_its_maker_in_nothing(server: LiveServer) -> None:
    short = server.post("/v1/tokens", {"user": "root2", "superuser": True, "expires_in": 3600})
    for body in ({"superuser": True}, {"user": "somebody"}, {"expires_in": 7200}):
        with server.http(short["token"]) as http:
            made = http.post("/v1/tokens", json=body).json()
        assert made["expires_at"] == short["expires_at"], body
    reading = server.post("/v1/tokens", {"user": "root2", "superuser": True, "role": "viewer"})
    with server.http(reading["token"]) as http:
        assert http.post("/v1/tokens", json={"superuser": True}).status_code == 403
        made = http.post("/v1/tokens", json={"role": "admin"}).json()
    assert (made["role"], made["superuser"]) == ("viewer", False)
    with server.http(made["token"]) as http:
        assert http.get("/v1/whoami").json()["projects"] == {}


@pytest.mark.parametrize("name", ["muster", "Muster", "engine", "SYSTEM"])
def test_nobody_is_called_as_muster_is(server: LiveServer, name: str) -> None:
    with server.http() as http:
        http.post("/v1/projects", json={"name": "names"})
        for answer in (
            http.post("/v1/tokens", json={"user": name}),
            http.put(f"/v1/projects/names/members/{name}", json={"role": "viewer"}),
        ):
            assert answer.status_code == 400
            assert "name of Muster itself" in answer.json()["error"]["message"]


def test_the_first_administrator_is_not_called_so_either(tmp_path) -> None:
    server = LiveServer(tmp_path / "home", env={"USER": "muster", "LOGNAME": "muster"})
    server.home.mkdir()
    (server.home / "server.log").touch(mode=0o644)
    try:
        server.start()
        assert server.get("/v1/whoami")["user"] == "admin"
        for name in ("token", "key", "muster.db", "muster.db-wal", "config.toml", "server.log"):
            assert (server.home / name).stat().st_mode & 0o077 == 0, name
    finally:
        stop_everything(server)


def test_the_last_admin_of_a_project_stays(server: LiveServer) -> None:
    token = new_user(server, "anna", lonely="admin")
    with server.http(token) as http:
        for answer in (
            http.delete("/v1/projects/lonely/members/anna"),
            http.put("/v1/projects/lonely/members/anna", json={"role": "member"}),
        ):
            assert answer.status_code == 409
            assert "last admin" in answer.json()["error"]["message"]
        assert http.put("/v1/projects/lonely/members/ben", json={"role": "admin"}).status_code == 200
        assert http.delete("/v1/projects/lonely/members/anna").status_code == 200
    with server.http() as http:
        assert http.delete("/v1/projects/lonely/members/ben").status_code == 200  # an administrator may


# --- runs of scripts outside ------------------------------------------------------------------------------------------


def opening(project: str, **more: Any) -> dict[str, Any]:
    return {"id": f"script-{uuid.uuid4().hex[:8]}x", "key": uuid.uuid4().hex, "project": project, **more}


def test_the_key_of_a_script_is_in_no_view_and_opens_the_run_for_its_user_alone(server: LiveServer) -> None:
    owner = new_user(server, "olga", scripts="member")
    mate = new_user(server, "mats", scripts="member")
    boss = new_user(server, "bea", scripts="admin")
    stranger = new_user(server, "stan", strangers="admin")
    body = opening("scripts")
    with server.http(owner) as http:
        opened = http.post("/v1/runs/external", json=body).json()
        assert http.post("/v1/runs/external", json=body).json() == opened
        seen = [http.get(f"/v1/runs/{body['id']}"), http.get(f"/v1/runs/{body['id']}/attempts"), http.get("/v1/runs")]
        seen += [http.post("/v1/runs/search", json={"projects": ["scripts"]})]
        seen += [http.get("/v1/events", params={"limit": 1000})]
        seen += [http.get("/mlflow/api/2.0/mlflow/runs/get", params={"run_id": body["id"]})]
        assert all(answer.status_code == 200 and body["key"] not in answer.text for answer in seen)
    for token in (mate, stranger):
        with server.http(token) as http:
            for project in ("scripts", "strangers"):
                for resume in (False, True):
                    answer = http.post("/v1/runs/external", json={**body, "project": project, "resume": resume})
                    assert answer.status_code in (403, 404, 409), answer.text
                    assert "att_" not in answer.text
    with server.http(boss) as http:
        assert http.post("/v1/runs/external", json=body).json() == opened


def ship(server: LiveServer, token: str, batch: Batch) -> httpx.Response:
    with server.http(token) as http:
        return http.post("/v1/ingest", content=batch.encode())


def test_a_script_s_token_ends_when_its_user_leaves_the_project(server: LiveServer) -> None:
    owner, body = new_user(server, "lena", leaving="member"), opening("leaving")
    with server.http(owner) as http:
        token = http.post("/v1/runs/external", json=body).json()["token"]
    assert ship(server, token, Batch(0, "running", pieces=(Piece(0, "log", 0, b"before\n"),))).status_code == 200
    with server.http() as http:
        assert http.delete("/v1/projects/leaving/members/lena").status_code == 200
    refused = ship(server, token, Batch(0, "running", pieces=(Piece(0, "log", 7, b"after\n"),)))
    assert refused.status_code == 403
    assert "no longer a member" in refused.json()["error"]["message"]
    with server.http(token) as http:
        assert http.put(f"/v1/ingest/blobs/{'0' * 64}", content=b"x").status_code == 403
        assert http.post("/v1/runs/external/beat").status_code == 403
    with server.http(owner) as http:
        assert http.post("/v1/runs/external", json=body).status_code == 404


def test_a_script_s_token_ends_with_its_run_and_a_repeated_end_is_answered(server: LiveServer) -> None:
    owner, body = new_user(server, "erik", ending="member"), opening("ending")
    with server.http(owner) as http:
        token = http.post("/v1/runs/external", json=body).json()["token"]
    last = Batch(0, "ended", OK, (Piece(0, "log", 0, b"all\n"),), whole=True)
    for _ in range(2):
        answer = ship(server, token, last)
        assert Reply.from_json(answer.content).done
    refused = ship(server, token, Batch(0, "ended", OK, (Piece(0, "log", 4, b"more\n"),)))
    assert (refused.status_code, "is over" in refused.text) == (410, True)
    with server.http(token) as http:
        assert http.put(f"/v1/ingest/blobs/{'0' * 64}", content=b"x").status_code == 410
    wrong = ship(server, token, Batch(0, "running", pieces=(Piece(2**31 - 1, "log", 0, b"x"),)))
    assert wrong.status_code == 400


def test_a_job_s_token_ends_with_its_attempt_and_gives_no_secrets_once_its_owner_left(server: LiveServer) -> None:
    owner = new_user(server, "sam", secretive="member")
    with server.http() as http:
        http.put("/v1/projects/secretive/secrets/KEY", json={"value": "hidden"})
    spec = {
        "name": "keyed",
        "run": "sleep 600",
        "project": "secretive",
        "workdir": str(server.home),
        "secrets": ["KEY"],
    }
    with server.http(owner) as http:
        job = http.post("/v1/jobs", json={"spec": spec}).json()["id"]
    server.wait(job, "running")
    token = load_keyring(server.home / "key").attempt_token(job, 1)
    with server.http(token) as http:
        assert http.get("/v1/ingest/secrets").json() == {"KEY": "hidden"}
    wrong = ship(server, token, Batch(0, "running", pieces=(Piece(1, "log", 0, b"x"),)))
    assert (wrong.status_code, "no rank 1" in wrong.text) == (400, True)
    with server.http() as http:
        assert http.delete("/v1/projects/secretive/members/sam").status_code == 200
    with server.http(token) as http:
        gone = http.get("/v1/ingest/secrets")
        assert (gone.status_code, "no longer a member" in gone.text) == (404, True)
    assert ship(server, token, Batch(0, "running")).status_code == 200  # the platform stops jobs, not a departure
    server.post(f"/v1/jobs/{job}/stop", {"force": True})
    server.wait(job, "stopped")

    def closed() -> bool:
        with server.http(token) as http:
            return http.put(f"/v1/ingest/blobs/{'0' * 64}", content=b"x").status_code == 410

    until(closed, "the launcher to have shipped everything")
    refused = ship(server, token, Batch(0, "ended", OK, (Piece(0, "log", 1 << 40, b"written after the end"),)))
    assert (refused.status_code, "is over, and all of it was shipped" in refused.text) == (410, True)


def test_ids_of_runs_are_never_a_job_s(server: LiveServer) -> None:
    for run in ("train-10000000", "train-1", "17", "10000000", "a-123456789012345"):
        with server.http() as http:
            for answer in (
                http.post("/v1/runs", json={"id": run}),
                http.post("/v1/runs/external", json={"id": run, "key": uuid.uuid4().hex}),
            ):
                assert answer.status_code == 400, (run, answer.text)
