"""Content by its digest is no way into another project: knowing a digest is not having its bytes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass

import httpx
import pytest
from content_kit import sha

from live import LiveServer, until
from muster.control.secrets import load_keyring
from muster.wire import Batch, Piece, doc_record

SECRET = b"weights of the project default"


@dataclass
class Sides:
    """`own` is the administrator with a run that has the secret; `eve` is a member of another project alone."""

    server: LiveServer
    own: httpx.Client
    eve: httpx.Client
    run: str  # of default
    theirs: str  # of eve's project

    def attempt(self, run: str) -> httpx.Client:
        return self.server.http(load_keyring(self.server.home / "key").attempt_token(run, 1))


@pytest.fixture(scope="module")
def sides(server: LiveServer) -> Iterator[Sides]:
    server.post("/v1/projects", {"name": "elsewhere"})
    server.post("/v1/queues", {"name": "elsewhere", "project": "elsewhere"})
    token = server.post("/v1/tokens", {"name": "eve", "user": "eve", "role": "member"})["token"]
    with server.http() as own, server.http(token) as eve:
        own.put("/v1/projects/elsewhere/members/eve", json={"role": "member"}).raise_for_status()
        run = own.post("/v1/runs", json={"name": "ours"}).json()["id"]
        theirs = eve.post("/v1/runs", json={"name": "theirs", "project": "elsewhere"}).json()["id"]
        own.put(f"/v1/runs/{run}/artifacts/secret", content=SECRET).raise_for_status()
        yield Sides(server, own, eve, run, theirs)


def missing(http: httpx.Client, *digests: str, tree: str | None = None) -> dict[str, object]:
    body = {"digests": list(digests), **({"tree": tree} if tree else {})}
    answer = http.post("/v1/blobs/missing", json=body)
    return dict(answer.raise_for_status().json())


def ship(http: httpx.Client, url: str, *docs: dict[str, object], **params: int) -> None:
    data = b"".join(doc_record({"time": 5.0, **doc}) for doc in docs)
    batch = Batch(0, "running", None, (Piece(0, "spool", 0, data),))
    http.post(url, content=batch.encode(), params=params).raise_for_status()


class TestAMember:
    def test_can_not_name_what_another_project_has(self, sides: Sides) -> None:
        never = sides.eve.put(f"/v1/runs/{sides.theirs}/artifacts/x", params={"digest": sha("never there")})
        there = sides.eve.put(f"/v1/runs/{sides.theirs}/artifacts/x", params={"digest": sha(SECRET)})
        assert never.status_code == there.status_code == 404
        assert never.text.replace(sha("never there"), "") == there.text.replace(sha(SECRET), "")
        assert sides.eve.get(f"/v1/runs/{sides.theirs}/artifacts/x").status_code == 404

    def test_is_told_that_it_is_missing(self, sides: Sides) -> None:
        assert missing(sides.eve, sha(SECRET))["missing"] == [sha(SECRET)]
        assert missing(sides.own, sha(SECRET))["missing"] == []

    def test_who_has_the_bytes_may_name_them(self, sides: Sides) -> None:
        data, one = b"known to both", sha("known to both")
        sides.own.put(f"/v1/runs/{sides.run}/artifacts/both", content=data).raise_for_status()
        assert missing(sides.eve, one)["missing"] == [one]
        frame = f"{one}{len(data):08x}".encode() + data
        assert sides.eve.post("/v1/blobs/bundle", content=frame).json() == {"blobs": 1}
        assert missing(sides.eve, one)["missing"] == []
        named = sides.eve.put(f"/v1/runs/{sides.theirs}/artifacts/both", params={"digest": one})
        assert named.status_code == 201
        wrong = sides.eve.put(f"/v1/blobs/{sha(SECRET)}", content=b"a guess")
        assert wrong.status_code == 400
        assert missing(sides.eve, sha(SECRET))["missing"] == [sha(SECRET)]

    def test_what_a_run_of_the_project_names_may_be_named_again(self, sides: Sides) -> None:
        sides.own.put(f"/v1/runs/{sides.theirs}/artifacts/given", content=b"given to them").raise_for_status()
        digest = sha("given to them")
        assert missing(sides.eve, digest)["missing"] == []
        again = sides.eve.put(f"/v1/runs/{sides.theirs}/artifacts/again", params={"digest": digest})
        assert again.status_code == 201

    def test_a_manifest_that_names_foreign_content_is_left_out(self, sides: Sides) -> None:
        tree = json.dumps({"stolen": [sha(SECRET), len(SECRET), 0o644]}).encode()
        sides.eve.put(f"/v1/blobs/{sha(tree)}", content=tree).raise_for_status()
        assert missing(sides.eve, tree=sha(tree))["tree"] is False
        job = submit(sides.eve, sides, tree)
        assert sides.eve.get(f"/v1/blobs/{sha(SECRET)}", params={"run": job}).status_code == 404
        assert sides.eve.get(f"/v1/runs/{job}/code").json()["files"] is None

    def test_a_foreign_manifest_is_left_out(self, sides: Sides) -> None:
        """Else its paths would be told, and the worker would fetch its files."""
        tree = json.dumps({"train.py": [sha("print(1)"), 8, 0o644]}).encode()
        for data in (b"print(1)", tree):
            sides.own.put(f"/v1/blobs/{sha(data)}", content=data).raise_for_status()
        ours = submit(sides.own, sides, tree, project="default")
        assert sides.own.get(f"/v1/runs/{ours}/code").json()["tree"] == sha(tree)
        assert missing(sides.eve, tree=sha(tree)) == {"missing": [], "tree": False}
        job = submit(sides.eve, sides, tree)
        assert sides.eve.get(f"/v1/runs/{job}/code").json()["tree"] is None

    def test_a_colleague_need_not_upload_a_snapshot_again(self, sides: Sides) -> None:
        tree = json.dumps({"a.py": [sha("shared code"), 11, 0o644]}).encode()
        for data in (b"shared code", tree):
            sides.eve.put(f"/v1/blobs/{sha(data)}", content=data).raise_for_status()
        assert missing(sides.eve, tree=sha(tree))["tree"] is True
        token = sides.server.post("/v1/tokens", {"name": "bob", "user": "bob", "role": "member"})["token"]
        sides.own.put("/v1/projects/elsewhere/members/bob", json={"role": "member"}).raise_for_status()
        with sides.server.http(token) as bob:
            assert missing(bob, sha("shared code"), tree=sha(tree)) == {"missing": [sha("shared code")], "tree": False}
            submit(sides.eve, sides, tree)
            assert missing(bob, sha("shared code"), tree=sha(tree)) == {"missing": [], "tree": True}

    def test_an_import_names_only_what_its_user_has(self, sides: Sides) -> None:
        body = {
            "tool": "wandb", "key": "k", "fingerprint": "0" * 64, "project": "elsewhere", "created_at": 5.0,
        }  # fmt: skip
        run = sides.eve.post("/v1/runs/import", json=body).raise_for_status().json()["id"]
        sides.eve.put(f"/v1/blobs/{sha('mine')}", content=b"mine").raise_for_status()
        docs = [
            {"type": "artifact", "path": name, "digest": digest, "bytes": 1}
            for name, digest in (("mine", sha("mine")), ("stolen", sha(SECRET)))
        ]
        ship(sides.eve, f"/v1/runs/{run}/import", *docs, attempt=1)
        assert sides.eve.get(f"/v1/runs/{run}/artifacts/mine").content == b"mine"
        assert sides.eve.get(f"/v1/runs/{run}/artifacts/stolen").status_code == 404


class TestAnAttempt:
    def test_can_not_ask_for_other_projects_content(self, sides: Sides) -> None:
        with sides.attempt(sides.theirs) as http, sides.attempt(sides.run) as ours:
            assert http.head(f"/v1/ingest/blobs/{sha(SECRET)}").status_code == 404
            assert ours.head(f"/v1/ingest/blobs/{sha(SECRET)}").status_code == 200

    def test_documents_name_only_what_its_project_has(self, sides: Sides) -> None:
        opened = sides.eve.post("/v1/runs/external", json={"id": "outside", "key": "0" * 32, "project": "elsewhere"})
        tree = json.dumps({"stolen": [sha(SECRET), len(SECRET), 0o644]}).encode()
        with sides.server.http(opened.json()["token"]) as http:
            for data in (b"a picture", tree):
                assert http.put(f"/v1/ingest/blobs/{sha(data)}", content=data).status_code == 204
            ship(
                http,
                "/v1/ingest",
                {"type": "artifact", "path": "picture", "digest": sha("a picture"), "bytes": 9},
                {"type": "artifact", "path": "stolen", "digest": sha(SECRET), "bytes": 9},
                {"type": "media", "name": "m", "step": 1, "kind": "image", "digest": sha("a picture"), "id": "1"},
                {"type": "media", "name": "m", "step": 2, "kind": "image", "digest": sha(SECRET), "id": "2"},
                {"type": "media", "name": "m", "step": 3, "kind": "image", "data": {"also": sha(SECRET)}, "id": "3"},
                {"type": "artifact", "path": "muster/code.json", "kind": "code", "digest": sha(tree), "bytes": 9},
            )
        assert sides.eve.get("/v1/runs/outside/artifacts/picture").content == b"a picture"
        assert sides.eve.get("/v1/runs/outside/artifacts/stolen").status_code == 404
        for params in ({}, {"run": "outside"}):
            assert sides.eve.get(f"/v1/blobs/{sha(SECRET)}", params=params).status_code == 404
        shown = sides.eve.get(f"/v1/blobs/{sha('a picture')}", params={"run": "outside"})
        assert shown.content == b"a picture"
        problems = sides.eve.get("/v1/runs/outside").json()["problems"]
        assert any("never arrived" in one for one in problems)


def submit(http: httpx.Client, sides: Sides, tree: bytes, project: str = "elsewhere") -> str:
    spec = {"name": "with-code", "run": "true", "workdir": str(sides.server.home), "project": project}
    spec |= {"queue": project} if project != "default" else {}
    answer = http.post("/v1/jobs", json={"spec": spec, "code": {"tree": sha(tree), "files": 1, "bytes": 1}})
    job = str(answer.raise_for_status().json()["id"])
    until(lambda: http.get(f"/v1/runs/{job}").status_code == 200, "its run")
    return job
