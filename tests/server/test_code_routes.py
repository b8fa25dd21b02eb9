"""A job's code for nodes that don't have its folder: to its own running attempt, and nothing but its own."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from live import LiveServer
from muster import Client
from muster.control.secrets import load_keyring


@pytest.fixture
def http(server: LiveServer) -> Iterator[httpx.Client]:
    with server.http() as made:
        yield made


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def submit(server: LiveServer, http: httpx.Client, run: str, **files: bytes) -> tuple[str, bytes]:
    """A job with a snapshot of these files, and its manifest."""
    manifest = json.dumps({path: [sha(data), len(data), 0o644] for path, data in files.items()}).encode()
    for data in (*files.values(), manifest):
        http.put(f"/v1/blobs/{sha(data)}", content=data).raise_for_status()
    spec = {"name": "code", "run": run, "workdir": str(server.home)}
    code = {"tree": sha(manifest), "files": len(files), "bytes": sum(map(len, files.values()))}
    return server.post("/v1/jobs", {"spec": spec, "code": code})["id"], manifest


def launcher(server: LiveServer, job: str) -> httpx.Client:
    return server.http(load_keyring(server.home / "key").attempt_token(job, 1))


def test_a_running_attempt_has_its_snapshot_and_nothing_else(server: LiveServer, http: httpx.Client) -> None:
    job, manifest = submit(server, http, "sleep 600", a=b"first", b=b"second", c=b"first")
    other, _ = submit(server, http, "sleep 600", d=b"of another")
    server.wait(job, "running")
    server.wait(other, "running")
    with launcher(server, job) as mine:
        answer = mine.get("/v1/ingest/code")
        assert (answer.status_code, answer.content) == (200, manifest)
        bundle = mine.post("/v1/ingest/code/bundle", content=json.dumps([sha(b"second"), sha(b"first")]))
        expected = f"{sha(b'second')}00000006second{sha(b'first')}00000005first"
        assert (bundle.status_code, bundle.text) == (200, expected)
        for wanted in ([sha(b"of another")], [sha(b"nowhere")], [sha(b"first"), sha(manifest)]):
            assert mine.post("/v1/ingest/code/bundle", content=json.dumps(wanted)).status_code == 404
        for body in ("", "{}", '["../x"]', "[1]", '"' + sha(b"first") + '"'):
            assert mine.post("/v1/ingest/code/bundle", content=body).status_code == 400
    for ref in (job, other):
        server.post(f"/v1/jobs/{ref}/stop", {"grace": 0})
        server.wait(ref)
    with launcher(server, job) as mine:  # it has ended
        assert mine.get("/v1/ingest/code").status_code == 404
        assert mine.post("/v1/ingest/code/bundle", content=json.dumps([sha(b"first")])).status_code == 404


def test_without_a_snapshot_or_a_token_there_is_nothing(server: LiveServer, http: httpx.Client) -> None:
    job = server.submit("sleep 600")["id"]
    server.wait(job, "running")
    with launcher(server, job) as mine:
        assert mine.get("/v1/ingest/code").status_code == 404
    with server.http("att_forged") as nobody:
        assert nobody.get("/v1/ingest/code").status_code == 401
        assert nobody.post("/v1/ingest/code/bundle", content="[]").status_code == 401
    assert http.get("/v1/ingest/code").status_code == 401  # nor for people: theirs is /v1/runs/{run}/code
    server.post(f"/v1/jobs/{job}/stop", {"grace": 0})
    server.wait(job)


def test_an_attempt_that_does_not_find_its_folder_starts_in_the_snapshot(server: LiveServer, tmp_path: Path) -> None:
    """The first removes it, and fails."""
    project = tmp_path / "project"
    (project / "sub").mkdir(parents=True)
    (project / "run.sh").write_text(
        '#!/bin/sh\nif [ "$MUSTER_ATTEMPT" = 1 ]; then rm -rf "$PWD"; exit 1; fi\ncat sub/*\n'
    )
    (project / "run.sh").chmod(0o755)
    (project / "sub" / "naïve name.txt").write_text("read from the snapshot\n")
    spec = {"name": "moved", "run": "./run.sh", "workdir": str(project)}
    retry = {"max_restarts": 1, "on": ["error"], "backoff": 0}
    with Client(server.url, server.token) as client:
        job = client.submit({**spec, "retry": retry}).id
    assert server.wait(job)["phase"] == "succeeded"
    assert not project.exists()
    assert server.output(job, attempt=2) == "read from the snapshot\n"
