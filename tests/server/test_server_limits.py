"""What one user may take of a server: jobs, tokens, streams and reads; and what ends when a right is taken away."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest

from live import LiveServer, live_server, until
from muster.client import Client
from muster.core.errors import ConfigError, MusterError, NotFound, Unauthenticated
from muster.server.limits import Limits

CONFIG = """
nodes = 2
[limits]
jobs_per_user = 5
jobs_per_project = 8
tokens_per_user = 3
streams_per_user = 4
reads_per_user = 1
read_wait = 0.01
[limits.bytes]
stored = "1MB"
logged = "1MB"
"""


@pytest.fixture(scope="module")
def limited(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    with live_server(tmp_path_factory.mktemp("limited"), config=CONFIG) as server:
        for node in ("local-0", "local-1"):
            server.post(f"/v1/nodes/{node}/health", {"health": "quarantined", "reason": "nothing is started here"})
        yield server


def member(server: LiveServer, user: str, project: str) -> str:
    with server.http() as http:
        http.post("/v1/projects", json={"name": project})
        assert http.put(f"/v1/projects/{project}/members/{user}", json={"role": "member"}).status_code == 200
        return str(http.post("/v1/tokens", json={"user": user}).json()["token"])


def job(server: LiveServer, project: str) -> dict[str, Any]:
    return {"name": "many", "run": "true", "project": project, "queue": "default", "workdir": str(server.home)}


def test_a_hundred_submissions_at_once_pass_no_quota(limited: LiveServer) -> None:
    tokens = {user: member(limited, user, "crowd") for user in ("ada", "bob")}

    def submit(user: str) -> httpx.Response:
        with limited.http(tokens[user]) as http:
            return http.post("/v1/jobs", json={"spec": job(limited, "crowd")})

    with ThreadPoolExecutor(16) as pool:
        answers = {user: list(pool.map(submit, [user] * 25)) for user in tokens}
    accepted = {user: sum(a.status_code == 201 for a in found) for user, found in answers.items()}
    assert accepted == {"ada": 5, "bob": 3}  # of ada's own limit, and of what that left of the project's
    refused = [a.json()["error"] for found in answers.values() for a in found if a.status_code == 409]
    assert {one["reasons"][0]["code"] for one in refused} == {"over_quota"}
    assert {"5", "8"} == {str(one["reasons"][0]["data"]["limit"]) for one in refused}
    assert all(one["hint"] for one in refused)
    with limited.http(tokens["ada"]) as http:
        batch = http.post("/v1/jobs/batch", json={"jobs": [{"spec": job(limited, "crowd")}] * 3}).json()["jobs"]
        assert [one["error"]["code"] for one in batch] == ["refused"] * 3
        assert limited.post("/v1/jobs", {"spec": job(limited, "crowd")})["id"]  # an administrator's
        for one in http.get("/v1/jobs", params={"user": "ada"}).json()["jobs"][:1]:
            assert http.post(f"/v1/jobs/{one['id']}/stop", json={}).json()["phase"] == "stopped"
            stopped = one["id"]
        assert http.post("/v1/jobs", json={"spec": job(limited, "crowd")}).status_code == 409  # the project is full
        assert http.post(f"/v1/jobs/{stopped}/resume", json={}).status_code == 409


def test_quotas_hold_after_a_restart(tmp_path: Path) -> None:
    with live_server(tmp_path, config=CONFIG) as server:
        for node in ("local-0", "local-1"):
            server.post(f"/v1/nodes/{node}/health", {"health": "quarantined", "reason": "nothing is started here"})
        token = member(server, "ada", "own")
        for _ in range(5):
            with server.http(token) as http:
                assert http.post("/v1/jobs", json={"spec": job(server, "own")}).status_code == 201
        server.stop()
        server.start()
        with server.http(token) as http:
            assert http.post("/v1/jobs", json={"spec": job(server, "own")}).status_code == 409


def test_tokens_of_a_user_are_counted(limited: LiveServer) -> None:
    token = member(limited, "tom", "tokens")
    with limited.http(token) as http:
        made = [http.post("/v1/tokens", json={}) for _ in range(3)]
        assert [one.status_code for one in made] == [201, 201, 409]
        assert made[-1].json()["error"]["reasons"][0]["code"] == "over_quota"
        assert http.delete(f"/v1/tokens/{made[0].json()['id']}").status_code == 200
        assert http.post("/v1/tokens", json={}).status_code == 201


def test_artifacts_of_a_project_have_so_many_bytes(limited: LiveServer) -> None:
    token = member(limited, "art", "stored")
    with limited.http(token) as http:
        run = http.post("/v1/runs", json={"name": "stores", "project": "stored"}).json()["id"]

    def put(number: int) -> httpx.Response:
        with limited.http(token) as http:
            return http.put(f"/v1/runs/{run}/artifacts/{number}.bin", content=bytes([number]) * 200_000)

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(put, range(20)))
    assert sorted({one.status_code for one in answers}) == [201, 409]
    kept = [number for number, one in enumerate(answers) if one.status_code == 201]
    assert len(kept) == 5
    told = next(one for one in answers if one.status_code == 409).json()["error"]["reasons"][0]
    assert (told["code"], told["data"]["limit"], told["data"]["project"]) == ("over_quota", 1_000_000, "stored")
    with limited.http(token) as http:
        assert http.delete(f"/v1/runs/{run}/artifacts/{kept[0]}.bin").status_code == 200
    until(lambda: put(kept[0]).status_code == 201, "the removed bytes to be seen")
    with limited.http(token) as http:  # content that is there already counts all the same
        digest = answers[kept[0]].json()["digest"]
        assert http.put(f"/v1/runs/{run}/artifacts/again.bin", params={"digest": digest}).status_code == 409


@pytest.mark.parametrize("kind", ["models", "traces"])
def test_so_do_those_of_logged_models_and_traces(limited: LiveServer, kind: str) -> None:
    token, api = member(limited, "log", "logged"), "/mlflow/api/2.0"
    with limited.http(token) as http:
        made = http.post(f"{api}/mlflow/experiments/create", json={"name": f"logged/{kind}"}).json()["experiment_id"]
        where = f"{api}/mlflow-artifacts/artifacts/{made}/{kind}/one/artifacts"
        part, whole = kind.encode() * 50_000, kind.encode() * 160_000
        assert http.put(f"{where}/a", content=part).status_code == 200
        for name in (where, where.replace(f"/{made}/", f"/0{made}/")):
            refused = http.put(f"{name}/b", content=whole)
            assert refused.status_code == 400, name
            assert "project 'logged'" in refused.json()["message"]
            assert "runs artifacts RUN rm" in refused.json()["message"]
        # What has no room is not taken first and refused afterwards.
        digest = hashlib.sha256(whole).hexdigest()
        assert http.post("/v1/blobs/missing", json={"digests": [digest]}).json()["missing"] == [digest]


def test_they_are_counted_after_a_restart(tmp_path: Path) -> None:
    where = "/mlflow/api/2.0/mlflow-artifacts/artifacts/0/models/one/artifacts"
    with live_server(tmp_path, config='[limits.bytes]\ndefault = "1MB"\n') as server:
        with server.http() as http:
            assert http.put(f"{where}/a", content=b"a" * 600_000).status_code == 200
        server.stop()
        server.start()
        with server.http() as http:
            assert http.put(f"{where}/b", content=b"b" * 600_000).status_code == 400
            assert http.put(f"{where}/b", content=b"b" * 300_000).status_code == 200


def test_open_streams_of_a_user_are_counted(limited: LiveServer) -> None:
    token = member(limited, "sam", "streams")
    bodies = []
    with ExitStack() as held:
        for _ in range(4):
            http = held.enter_context(limited.http(token))
            opened = held.enter_context(http.stream("GET", "/v1/events/stream"))
            assert opened.status_code == 200
            bodies.append(opened.iter_bytes())  # httpx closes what nobody iterates any more
            next(bodies[-1])
        with limited.http(token) as http, http.stream("GET", "/v1/events/stream") as refused:
            assert refused.status_code == 429
            assert refused.headers["retry-after"]
        with limited.http() as http, http.stream("GET", "/v1/events/stream") as other:
            assert other.status_code == 200

    def opens() -> bool:
        with limited.http(token) as http, http.stream("GET", "/v1/events/stream") as again:
            return again.status_code == 200

    until(opens, "the closed streams to be counted off")


def test_heavy_reads_of_one_leave_the_server_to_others(limited: LiveServer) -> None:
    """One read at a time, and many at once: some are told to come back, and the client of the SDK does."""
    token = member(limited, "rex", "reads")
    done = threading.Event()
    refused: list[httpx.Response] = []

    def read() -> None:
        with limited.http(token) as http:
            while not done.is_set():
                answer = http.get("/v1/jobs", params={"limit": 1000})
                if answer.status_code != 200:
                    refused.append(answer)
                    done.set()

    threads = [threading.Thread(target=read) for _ in range(40)]
    for thread in threads:
        thread.start()
    try:
        with limited.http() as http:
            assert http.get("/v1/jobs").status_code == 200
            assert http.get("/healthz").status_code == 200
        assert done.wait(180)
    finally:
        done.set()
        for thread in threads:
            thread.join()
    assert {one.status_code for one in refused} == {429}
    assert refused[0].headers["retry-after"]
    assert refused[0].json()["error"]["code"] == "too_many"


def test_the_client_waits_when_it_has_too_much_under_way(limited: LiveServer) -> None:
    token = member(limited, "kim", "waits")
    with ThreadPoolExecutor(32) as pool, Client(limited.url, token) as client:
        found = list(pool.map(lambda _: client.jobs(), range(200)))
    assert len(found) == 200


def follow(server: LiveServer, token: str, path: str) -> Callable[[], str]:
    """Opens a stream and reads it in a thread; gives a function that waits for its end and returns what it said."""
    said: list[str] = []
    opened = threading.Event()

    def read() -> None:
        headers = {"Authorization": f"Bearer {token}"}
        with httpx.stream("GET", server.url + path, headers=headers, timeout=None, trust_env=False) as stream:
            for text in stream.iter_text():
                said.append(text)
                opened.set()

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    assert opened.wait(180)

    def end() -> str:
        thread.join(180)
        assert not thread.is_alive(), said
        return "".join(said)

    return end


@pytest.fixture
def followed(server: LiveServer) -> Iterator[str]:
    with server.http() as http:
        http.post("/v1/projects", json={"name": "watched"})
    job = str(server.submit("sleep 600", name="watched", project="watched", queue="default")["id"])
    yield job
    server.post(f"/v1/jobs/{job}/stop", {"force": True})  # other files share the server, and its seats


@pytest.mark.parametrize("path", ["/v1/events/stream", "/v1/events/stream?project=watched", "/v1/jobs/{job}/stream",
                                  "/v1/jobs/{job}/logs/stream", "/v1/events/stream?job={job}"])  # fmt: skip
def test_a_stream_ends_with_its_token(server: LiveServer, followed: str, path: str) -> None:
    token = member(server, "vic", "watched")
    end = follow(server, token, path.format(job=followed))
    with server.http() as http:
        assert http.delete(f"/v1/tokens/{token.split('_')[1]}").status_code == 200
    said = end()
    assert "event: error" in said
    assert "unauthenticated" in said


@pytest.mark.parametrize("path", ["/v1/jobs/{job}/stream", "/v1/jobs/{job}/logs/stream", "/v1/events/stream?job={job}",
                                  "/v1/events/stream?project=watched"])  # fmt: skip
def test_a_stream_ends_with_the_membership(server: LiveServer, followed: str, path: str) -> None:
    token = member(server, "moe", "watched")
    end = follow(server, token, path.format(job=followed))
    with server.http() as http:
        assert http.delete("/v1/projects/watched/members/moe").status_code == 200
    assert "not_found" in end()


def test_the_client_says_why_a_stream_ended(server: LiveServer, followed: str) -> None:
    token = member(server, "cal", "watched")
    found: list[MusterError] = []
    begun = threading.Event()

    def read() -> None:
        try:
            with Client(server.url, token) as client:
                for _ in client.watch(followed):
                    begun.set()
        except MusterError as error:
            found.append(error)

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    assert begun.wait(180)
    with server.http() as http:
        http.delete(f"/v1/tokens/{token.split('_')[1]}")
    thread.join(180)
    assert isinstance(found[0], Unauthenticated | NotFound)


@pytest.mark.parametrize(
    "table", [{"jobs": 3}, {"reads": 0}, {"read_wait": "soon"}, {"bytes_per_project": "many"}, {"bytes": {"a": 1.5}}]
)
def test_limits_that_are_none_are_refused(table: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        Limits.of(table)
