"""Who may do what: tokens, roles on every route, secrets that never come back out."""

from __future__ import annotations

import sqlite3
import sys
from contextlib import suppress

import pytest

from certificate import self_signed
from live import LiveServer, below, live_server
from muster.cli.main import main
from muster.core.errors import ConfigError
from muster.server.settings import Settings

SECRET = "correct-horse-battery-staple"


def new_user(server: LiveServer, user: str, **roles: str) -> str:
    with server.http() as http:
        for project, role in roles.items():
            http.post("/v1/projects", json={"name": project})
            assert http.put(f"/v1/projects/{project}/members/{user}", json={"role": role}).status_code == 200
        made = http.post("/v1/tokens", json={"user": user, "name": "test"})
    assert made.status_code == 201
    return str(made.json()["token"])


def test_no_token_or_a_wrong_one_opens_nothing(server: LiveServer) -> None:
    schema = server.get("/openapi.json")
    open_to_all = {"/healthz", "/readyz"}
    tried = 0
    for path, methods in schema["paths"].items():
        for method in methods:
            if path in open_to_all or (method, path) == ("post", "/v1/session"):  # that is where one signs in
                continue
            url = path
            for name in ("ref", "name", "project", "user", "token"):
                url = url.replace("{" + name + "}", "abc")
            for header in ({}, {"Authorization": "Bearer mst_abc_def"}, {"Authorization": "Basic eDp5"}):
                with server.http() as http:
                    http.headers.pop("Authorization")
                    answer = http.request(method.upper(), url, json={}, headers=header)
                assert answer.status_code == 401, (method, path, answer.text)
                tried += 1
    assert tried > 60


def test_roles_hold_on_every_verb(server: LiveServer) -> None:
    viewer = new_user(server, "vera", alpha="viewer")
    member = new_user(server, "mia", alpha="member")
    outsider = new_user(server, "otto", beta="admin")
    spec = {"spec": {"name": "own", "run": "sleep 600", "project": "alpha", "workdir": str(server.home)}}
    with server.http(member) as http:
        job = http.post("/v1/jobs", json=spec).json()["id"]
    cases = [
        (viewer, "GET", f"/v1/jobs/{job}", None, 200),
        (viewer, "POST", "/v1/jobs", spec, 403),
        (viewer, "POST", f"/v1/jobs/{job}/stop", {}, 403),
        (viewer, "PUT", "/v1/projects/alpha/secrets/KEY", {"value": "x"}, 403),
        (viewer, "GET", "/v1/projects/alpha/secrets", None, 403),
        (member, "PUT", "/v1/projects/alpha/secrets/KEY", {"value": "x"}, 403),
        (member, "PUT", "/v1/projects/alpha/members/eve", {"role": "admin"}, 403),
        (member, "POST", "/v1/queues", {"name": "mine", "project": "alpha"}, 403),
        (member, "POST", "/v1/projects", {"name": "gamma"}, 403),
        (member, "POST", "/v1/nodes/local-0/health", {"health": "draining"}, 403),
        (member, "POST", "/v1/tokens", {"user": "root"}, 403),
        (member, "POST", "/v1/tokens", {"superuser": True}, 403),
        (outsider, "GET", f"/v1/jobs/{job}", None, 404),
        (outsider, "GET", f"/v1/jobs/{job}/logs", None, 404),
        (outsider, "POST", f"/v1/jobs/{job}/stop", {}, 404),
        (outsider, "POST", "/v1/jobs", spec, 404),
        (outsider, "GET", "/v1/projects/alpha/secrets", None, 404),
    ]
    for token, method, path, body, status in cases:
        with server.http(token) as http:
            answer = http.request(method, path, json=body)
        assert answer.status_code == status, (method, path, answer.text)
    with server.http(outsider) as http:
        assert http.get("/v1/jobs").json()["jobs"] == []
        assert {e["project"] for e in http.get("/v1/events", params={"limit": 1000}).json()["events"]} <= {"beta"}
        assert all(job not in node["jobs"] for node in http.get("/v1/nodes").json()["nodes"])
    with server.http(member) as http:
        assert http.post(f"/v1/jobs/{job}/stop", json={"force": True}).status_code == 200


def test_the_second_person_is_told_what_an_administrator_types_to_let_them_in(server: LiveServer) -> None:
    token = new_user(server, "newt")
    spec = {"spec": {"name": "first", "run": "true", "workdir": str(server.home)}}
    command = "`muster project member default newt member`"
    with server.http(token) as http:
        refused = http.post("/v1/jobs", json=spec)
        elsewhere = http.post("/v1/jobs", json={"spec": {**spec["spec"], "project": "nowhere"}})
    assert refused.status_code == elsewhere.status_code == 404
    told = refused.json()["error"]
    assert command in told["hint"]
    other = elsewhere.json()["error"]
    assert {key: text.replace("nowhere", "default") for key, text in other.items()} == told, "it reveals nothing"
    home = ["--home", str(server.home)]
    assert main([*home, *command.strip("`").split()[1:]]) == 0
    with server.http(token) as http:
        accepted = http.post("/v1/jobs", json=spec)
    assert accepted.status_code == 201, accepted.text


def test_a_role_that_is_too_low_is_told_with_who_can_change_it(server: LiveServer) -> None:
    token = new_user(server, "vito", lab="viewer")
    spec = {"spec": {"name": "x", "run": "true", "project": "lab", "workdir": str(server.home)}}
    with server.http(token) as http:
        told = http.post("/v1/jobs", json=spec).json()["error"]
    assert told["hint"] == "An admin of the project gives it with `muster project member lab vito member`."
    admin = new_user(server, "addy", lab="admin")
    with server.http(admin) as http:
        capped = http.post("/v1/tokens", json={"role": "viewer"}).json()["token"]
    with server.http(capped) as http:
        told = http.post("/v1/jobs", json=spec).json()["error"]
    assert told["hint"] == "This token allows no more than viewer: use another."


def test_a_revoked_or_capped_token_does_no_more_than_it_may(server: LiveServer) -> None:
    admin = new_user(server, "ada", delta="admin")
    with server.http(admin) as http:
        weak = http.post("/v1/tokens", json={"role": "viewer"}).json()
        spec = {"spec": {"name": "x", "run": "true", "project": "delta", "workdir": str(server.home)}}
    with server.http(weak["token"]) as http:
        assert http.get("/v1/jobs").status_code == 200
        assert http.post("/v1/jobs", json=spec).status_code == 403
        stronger = http.post("/v1/tokens", json={"role": "admin"}).json()
        assert stronger["role"] == "viewer"
    with server.http(admin) as http:
        assert http.delete(f"/v1/tokens/{weak['id']}").status_code == 200
        assert all("digest" not in token for token in http.get("/v1/tokens").json()["tokens"])
    with server.http(weak["token"]) as http:
        assert http.get("/v1/jobs").status_code == 401


def test_secrets_reach_ranks_and_nothing_else(server: LiveServer) -> None:
    with server.http() as http:
        assert http.put("/v1/projects/default/secrets/API_KEY", json={"value": SECRET}).json() == {"name": "API_KEY"}
    check = (
        f"{sys.executable} -c \"import os; v = os.environ['API_KEY']; print(len(v), v); raise ValueError('with ' + v)\""
    )
    job = server.submit(check, secrets=["API_KEY"])
    done = server.wait(job["id"])
    output = server.output(job["id"])
    assert output.startswith(f"{len(SECRET)} ***")
    seen = [
        output,
        str(done),
        str(server.get("/v1/events", limit=10_000)),
        str(server.get(f"/v1/jobs/{job['id']}/attempts")),
    ]
    seen += [
        str(server.get(f"/v1/jobs/{job['id']}/spec")),
        str(server.get("/v1/projects/default/secrets")),
        server.log(),
    ]
    assert all(SECRET not in text for text in seen)
    dump = sqlite3.connect(f"file:{server.home / 'muster.db'}?mode=ro", uri=True)
    assert all(SECRET not in line for line in dump.iterdump())
    for path in [path for path in below(server.home) if path.is_file()]:
        with suppress(FileNotFoundError):  # a draft that has become a file since it was listed
            assert SECRET.encode() not in path.read_bytes(), path
    with server.http() as http:
        bad = http.put("/v1/projects/default/secrets/API_KEY", json={"value": SECRET, "oops": SECRET})
        assert bad.status_code == 400
        assert SECRET not in bad.text
        assert http.delete("/v1/projects/default/secrets/API_KEY").status_code == 200
        gone = http.post("/v1/jobs", json={"spec": {"name": "x", "run": "true", "secrets": ["API_KEY"]}})
    assert [r["code"] for r in gone.json()["error"]["reasons"]] == ["unknown_secret"]


def test_files_with_keys_are_private(server: LiveServer) -> None:
    for name in ("token", "key"):
        assert (server.home / name).stat().st_mode & 0o077 == 0
    assert server.token not in server.log()


def test_large_bodies_are_refused_before_they_are_read(server: LiveServer) -> None:
    with server.http() as http:
        answer = http.post("/v1/jobs", content=b"x" * (3 << 20))
        assert answer.status_code == 413

        def parts():
            for _ in range(3):
                yield b"x" * (1 << 20)

        assert http.post("/v1/jobs", content=parts()).status_code == 413


def test_workers_need_the_token_of_their_own_attempt(server: LiveServer) -> None:
    with server.http() as http:
        assert http.post("/v1/ingest", content=b"").status_code == 401
        assert http.get("/v1/ingest/secrets").status_code == 401


def test_it_does_not_listen_beyond_loopback_unencrypted(tmp_path) -> None:
    with pytest.raises(ConfigError, match="--allow-insecure"):
        Settings.load(tmp_path, {"host": "0.0.0.0"})
    assert Settings.load(tmp_path, {"host": "0.0.0.0", "allow_insecure": True}).port == 6878
    with pytest.raises(ConfigError, match="both a certificate and its key"):
        Settings.load(tmp_path, {"tls_cert": "x"})


def test_settings_are_checked(tmp_path) -> None:
    (tmp_path / "config.toml").write_text("prot = 3\n")
    with pytest.raises(ConfigError, match="Did you mean `port`"):
        Settings.load(tmp_path, {})
    (tmp_path / "config.toml").write_text("port = \n")
    with pytest.raises(ConfigError, match="not valid TOML"):
        Settings.load(tmp_path, {})


def test_tls_serves_and_workers_trust_it(tmp_path) -> None:
    both = str(self_signed(tmp_path))
    with live_server(tmp_path / "home", "--tls-cert", both, "--tls-key", both, ca=both) as server:
        assert server.url.startswith("https://")
        assert server.wait(server.submit("echo over tls")["id"])["phase"] == "succeeded"
        assert server.output("job") == "over tls\n"
