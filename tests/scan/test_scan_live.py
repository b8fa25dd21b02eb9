"""A server that scans what is submitted, uploaded, registered and downloaded: over its kill, and with old clients."""

from __future__ import annotations

import hashlib
import json
import pickle
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from pickle_kit import MARKER, acts, torch_zip, zipped

from live import LiveServer, live_server, until
from muster import Client
from muster.core.errors import Refused

KEY = "gh" + "p_" + "q7Xw2LmZ9kRt4VbN8sYc1Hd6Pf3Gj5TaEuKo"
BAD = torch_zip(acts(2))
GOOD = torch_zip(pickle.dumps({"a": [1, 2]}, 2))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    with live_server(tmp_path_factory.mktemp("home")) as made:
        yield made


@pytest.fixture(scope="module")
def job(server: LiveServer) -> str:
    return str(server.submit("true")["id"])


@pytest.fixture(scope="module")
def member(server: LiveServer) -> str:
    """The token of a member of the project."""
    with server.http() as http:
        http.put("/v1/projects/default/members/mel", json={"role": "member"})
        return str(http.post("/v1/tokens", json={"user": "mel"}).json()["token"])


def put(http: httpx.Client, job: str, path: str, data: bytes, **params: str) -> httpx.Response:
    return http.put(f"/v1/runs/{job}/artifacts/{path}", content=data, params=params)


def rules(server: LiveServer, text: str) -> None:
    with server.http() as http:
        assert http.put("/v1/rules", json={"text": text}).status_code == 200


def shown(server: LiveServer, job: str, path: str) -> dict:
    files = server.get(f"/v1/runs/{job}/artifacts", flat=True)["files"]
    return next(one for one in files if one["path"] == path)


def scanned(server: LiveServer, job: str, path: str) -> dict:
    return until(lambda: one if (one := shown(server, job, path))["scan"] != "unscanned" else None, "a verdict")


# --- what is submitted ------------------------------------------------------------------------------------------------
@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "code"
    made.mkdir()
    (made / "train.py").write_text("print('hello')\n")
    return made


@pytest.fixture
def client(server: LiveServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Client]:
    monkeypatch.setenv("MUSTER_HOME", str(tmp_path / "client"))
    monkeypatch.setenv("MUSTER_SNAPSHOT", "1")
    with Client(server.url, server.token) as made:
        yield made


def test_a_secret_in_a_file_is_refused_before_it_is_sent(server: LiveServer, client: Client, folder: Path) -> None:
    spec = {"name": "leaky", "run": "true", "workdir": str(folder)}
    assert client.submit(spec).id
    (folder / "train.py").write_text(f"import os\nlogin('{KEY}')\n")
    for _ in range(2):  # the second time, from the verdicts that are kept
        with pytest.raises(Refused) as caught:
            client.submit(spec)
        (reason,) = caught.value.reasons
        assert (reason.code, reason.data["places"]) == ("secret_found", ["train.py:2"])
        assert "muster project secret set NAME --project default" in reason.hint
        assert KEY not in str(caught.value.to_dict())
    digest = hashlib.sha256((folder / "train.py").read_bytes()).hexdigest()
    with server.http() as http:
        asked = http.post("/v1/blobs/missing", json={"digests": [digest]}).json()
    assert asked["missing"] == [digest]
    assert all(KEY not in path.read_text(errors="replace") for path in (folder.parent / "client").rglob("*.json"))


def test_who_removes_a_secret_is_not_stopped_and_it_is_not_sent(
    server: LiveServer, client: Client, folder: Path
) -> None:
    def git(*words: str) -> None:
        who = ("-c", "user.name=ada", "-c", "user.email=ada@localhost")
        subprocess.run(["git", *who, *words], cwd=folder, check=True, capture_output=True)

    (folder / "train.py").write_text(f"a = 1\nk = '{KEY}'\n")
    for words in (["init"], ["add", "."], ["commit", "-m", "x"]):
        git(*words)
    (folder / "train.py").write_text("a = 1\nk = os.environ['KEY']\n")
    job = client.submit({"name": "mended", "run": "true", "workdir": str(folder)})
    code = server.get(f"/v1/runs/{job.id}")["code"]
    assert code["tree"]
    assert "diff" not in code
    (folder / "train.py").write_text(f"a = 1\nk = '{KEY}'\nb = 2\n")
    with pytest.raises(Refused, match=r"train\.py:2"):
        client.submit({"name": "mended", "run": "true", "workdir": str(folder)})


def upload(server: LiveServer, files: dict[str, bytes]) -> dict:
    """As a client of an older version, or an attacker's, which scans nothing."""
    with server.http() as http:

        def blob(data: bytes) -> str:
            digest = hashlib.sha256(data).hexdigest()
            assert http.put(f"/v1/blobs/{digest}", content=data).status_code == 201
            return digest

        manifest = {path: [blob(data), len(data), 0o644] for path, data in files.items()}
        tree = blob(json.dumps(manifest, sort_keys=True, separators=(",", ":")).encode())
    return {"tree": tree, "files": len(files), "bytes": sum(map(len, files.values()))}


def submit(server: LiveServer, **body: object) -> httpx.Response:
    spec = {"name": "leaky", "run": "true", "workdir": str(server.home), **body.pop("spec", {})}
    with server.http() as http:
        return http.post("/v1/jobs", json={"spec": spec, **body})


def test_the_server_scans_what_a_client_did_not(server: LiveServer) -> None:
    code = upload(server, {"train.py": f"k = '{KEY}'".encode(), "data.csv": b"1," * 1_500_000})
    answer = submit(server, code=code)
    assert answer.status_code == 409, answer.text
    (reason,) = answer.json()["error"]["reasons"]
    assert (reason["code"], reason["data"]["places"]) == ("secret_found", ["train.py:1"])
    diff = upload(server, {"x": f"+k = '{KEY}'\n".encode()})
    changes = {"diff": hashlib.sha256(f"+k = '{KEY}'\n".encode()).hexdigest(), "files": 0, "bytes": 0}
    assert diff
    (reason,) = submit(server, code=changes).json()["error"]["reasons"]
    assert reason["data"]["places"] == ["the changes against the commit:1"]
    together = {"jobs": [{"spec": {"name": "a", "run": "true", "workdir": str(server.home)}, "code": code}]}
    assert server.post("/v1/jobs/batch", together)["jobs"][0]["error"]["reasons"][0]["code"] == "secret_found"


@pytest.mark.parametrize(
    ("spec", "place"),
    [
        ({"envs": {"X": KEY}}, "envs.X"),
        ({"envs": {"DB_PASSWORD": "hunter22xyz"}}, "envs.DB_PASSWORD"),
        ({"run": f"python train.py --key {KEY}"}, "run"),
        ({"tags": {"note": KEY}}, "tags.note"),
        ({"purpose": f"try {KEY}"}, "purpose"),
    ],
)
def test_the_texts_of_a_job_are_scanned(server: LiveServer, spec: dict, place: str) -> None:
    for dry in (False, True):
        answer = submit(server, spec=spec, dry_run=dry)
        assert answer.status_code == 409, answer.text
        (reason,) = answer.json()["error"]["reasons"]
        assert (reason["code"], reason["data"]["places"]) == ("secret_found", [place])
        assert KEY not in answer.text
    assert KEY not in server.log()


def test_who_submits_is_told_of_what_only_warns(server: LiveServer) -> None:
    notebook = json.dumps({"cells": [{"cell_type": "code", "source": "1", "outputs": [{"text": "1"}]}]}).encode()
    code = upload(server, {"a.ipynb": notebook, "big.txt": b"x y\n" * 600_000})
    try:
        rules(server, "guards: [{check: large_files, action: warn, limit: 2MB}, {check: secrets, action: warn}]")
        spec = {"envs": {"X": KEY}}
        for answer in (submit(server, code=code, spec=spec), submit(server, code=code, spec=spec, dry_run=True)):
            told = "\n".join(answer.json()["warnings"])
            assert "envs.X: GitHub Token" in told
            assert "a.ipynb: outputs in cell 1. Clear them" in told
            assert "big.txt: a large file (2400KB)" in told
            assert "big.txt: not looked at" in told
            assert KEY not in told
        rules(server, "guards: [{check: large_files, action: refuse, limit: 2MB}, {check: notebooks, action: refuse}]")
        reasons = submit(server, code=code).json()["error"]["reasons"]
        assert [one["code"] for one in reasons] == ["file_too_large", "notebook_outputs"]
    finally:
        rules(server, "{}")


# --- artifacts --------------------------------------------------------------------------------------------------------
def test_what_could_act_is_quarantined(server: LiveServer, job: str, member: str) -> None:
    with server.http() as http, server.http(member) as mine:
        digest = put(mine, job, "models/bad.pt", BAD).json()["digest"]
        path = f"/v1/runs/{job}/artifacts/models/bad.pt"
        # At once, whether the scan beside has seen it or not.
        for url in (path, f"/v1/blobs/{digest}", f"{path}?why=please", f"/v1/blobs/{digest}?run={job}"):
            answer = mine.get(url)
            assert answer.status_code == 409, url
            assert answer.json()["error"]["reasons"][0]["code"] == "artifact_quarantined"
        assert "safetensors.torch.save_file" in answer.text
        assert mine.get(path, headers={"Range": "bytes=0-10"}).status_code == 409
        assert put(mine, job, "other.pt", b"", digest=digest).status_code == 409
        one = scanned(server, job, "models/bad.pt")
        assert (one["scan"], one["findings"][0]["sort"]) == ("quarantined", "unsafe")
        assert "io.open" in one["findings"][0]["what"]
        assert http.get(path).status_code == 409
        assert http.get(path, params={"why": "to look into it"}).content == BAD
        kinds = [one["kind"] for one in server.get("/v1/events", limit=500)["events"]]
        assert "artifact.quarantined" in kinds
        assert "artifact.opened" in kinds
        notes = server.get(f"/v1/runs/{job}/notes")["entries"]
        assert any("`models/bad.pt` is quarantined" in note["text"] for note in notes)
    assert not Path(MARKER).exists()


def test_what_is_safe_is_served(server: LiveServer, job: str, member: str) -> None:
    with server.http(member) as mine:
        put(mine, job, "models/good.pt", GOOD)
        assert mine.get(f"/v1/runs/{job}/artifacts/models/good.pt").content == GOOD
    assert scanned(server, job, "models/good.pt")["scan"] == "clean"


def test_models_are_made_of_what_is_clean(server: LiveServer, job: str, member: str) -> None:
    worse = torch_zip(acts(3))
    with server.http(member) as mine:
        put(mine, job, "m/worse.pt", worse, kind="model")
        for source in (f"artifact:{job}/m/worse.pt", f"artifact:{job}/m", f"runs:/{job}/m"):
            answer = mine.post("/v1/models/net/versions", json={"source": source, "project": "default"})
            assert answer.status_code == 409, answer.text
            assert "can't be registered" in answer.text
        assert mine.post("/v1/models/net/versions", json={"run": job, "project": "default"}).status_code == 409
        mine.delete(f"/v1/runs/{job}/artifacts/m")
        put(mine, job, "m/fine.pt", GOOD, kind="model")
        made = mine.post("/v1/models/net/versions", json={"source": f"artifact:{job}/m/fine.pt", "project": "default"})
        assert made.status_code == 201, made.text
        put(mine, job, "m/fine.pt", worse, kind="model")  # replaced after it was registered
        promoted = mine.post("/v1/models/net/versions/1/stage", json={"stage": "staging"})
        assert promoted.status_code == 409
        assert "can't be promoted" in promoted.text
        assert mine.get("/v1/models/net/versions/1").json()["scan"] == "quarantined"
        assert mine.post("/v1/models/net/versions/1/stage", json={"stage": "archived"}).status_code == 200


def test_a_policy_may_let_it_pass(server: LiveServer, job: str, member: str) -> None:
    bad = zipped({"x.pkl": acts(5)})
    try:
        rules(server, "guards: [{check: artifacts, action: warn}]")
        with server.http(member) as mine:
            put(mine, job, "warned.zip", bad)
            assert mine.get(f"/v1/runs/{job}/artifacts/warned.zip").content == bad
            assert scanned(server, job, "warned.zip")["scan"] == "flagged"
            rules(server, "{}")
            assert mine.get(f"/v1/runs/{job}/artifacts/warned.zip").status_code == 409
    finally:
        rules(server, "{}")


@pytest.mark.parametrize("whose", ["an administrator's", "a member's"])
def test_a_job_does_not_read_what_is_quarantined_by_naming_it_as_code(
    server: LiveServer, member: str, whose: str
) -> None:
    """The digest is shown with the artifact, and a job gets the files of its snapshot without being asked who it is."""
    bad, good = torch_zip(acts(2) + whose.encode()), torch_zip(pickle.dumps({"a": [whose]}, 2))
    tree, fine = _tree(bad), _tree(good)
    run = str(server.submit("true")["id"])
    with server.http() as admin, server.http(member) as mel:
        owner, thief = (admin, mel) if whose == "an administrator's" else (mel, admin)
        assert put(owner, run, "weights.pt", bad).status_code == 201
        assert put(owner, run, "good.pt", good).status_code == 201
        for made in (tree, fine):
            assert thief.put(f"/v1/blobs/{sha(made)}", content=made).status_code == 201
        assert _with_code(thief, server, tree) is None  # perhaps before the scan has a verdict
        assert scanned(server, run, "weights.pt")["scan"] == "quarantined"
        assert scanned(server, run, "good.pt")["scan"] == "clean"
        asked = thief.post("/v1/blobs/missing", json={"digests": [sha(bad)], "tree": sha(tree)}).json()
        assert asked == {"missing": [sha(bad)], "tree": False}
        assert _with_code(thief, server, tree) is None
        assert _with_code(thief, server, fine) == json.loads(fine)
        assert thief.put(f"/v1/blobs/{sha(bad)}", content=bad).status_code == 201  # who has the bytes gains nothing
        assert _with_code(thief, server, tree) == json.loads(tree)


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _tree(data: bytes) -> bytes:
    return json.dumps({"weights.pt": [sha(data), len(data), 0o644]}).encode()


def _with_code(http: httpx.Client, server: LiveServer, tree: bytes) -> dict | None:
    """The code of a job that is submitted with this snapshot."""
    code = {"tree": sha(tree), "files": 1}
    body = {"spec": {"name": "named", "run": "true", "workdir": str(server.home)}, "code": code}
    job = http.post("/v1/jobs", json=body).raise_for_status().json()["id"]
    until(lambda: http.get(f"/v1/runs/{job}").status_code == 200, "its run")
    return http.get(f"/v1/runs/{job}/code").json()["files"]


def test_a_client_uploads_its_own_file_again_when_the_same_is_quarantined(server: LiveServer, tmp_path: Path) -> None:
    bad = torch_zip(acts(2) + b"in a working directory")
    run = str(server.submit("true")["id"])
    with server.http() as http:
        assert put(http, run, "weights.pt", bad).status_code == 201
    scanned(server, run, "weights.pt")
    (tmp_path / "weights.pt").write_bytes(bad)
    with Client(server.url, server.token) as client:
        job = client.submit({"name": "own", "run": "true", "workdir": str(tmp_path)}).id
        code = until(lambda: server.get(f"/v1/runs/{job}/code"), "its code")
    assert code["files"].keys() == {"weights.pt"}


def test_mlflow_serves_no_quarantined_file(server: LiveServer, job: str) -> None:
    with server.http() as http:
        put(http, job, "bad2.pkl", acts(1))
        answer = http.get("/get-artifact", params={"run_id": job, "path": "bad2.pkl"})
        if answer.status_code == 404:
            answer = http.get("/mlflow/get-artifact", params={"run_id": job, "path": "bad2.pkl"})
        assert answer.status_code in (400, 404, 409)
        assert acts(1) not in answer.content


def test_a_server_that_is_killed_before_its_verdict_scans_again(tmp_path: Path) -> None:
    server = LiveServer(tmp_path / "home")
    try:
        server.start(MUSTER_FAULT="track.before_verdict:1")
        job = server.submit("true")["id"]
        with server.http() as http:
            put(http, job, "bad.pkl", acts(4))
        assert server.process is not None
        until(lambda: server.process.poll() is not None, "the server to be killed")
        server.start()
        one = scanned(server, job, "bad.pkl")
        assert one["scan"] == "quarantined"
        events = [one["kind"] for one in server.get("/v1/events", limit=500)["events"]]
        assert events.count("artifact.quarantined") == 1
    finally:
        server.stop()
