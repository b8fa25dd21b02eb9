"""Content over HTTP: streamed both ways, in ranges, safe for browsers, and only for those who may see a run of it."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest
from content_kit import sha

from live import LiveServer, until
from muster.control.secrets import load_keyring


@pytest.fixture(scope="module")
def job(server: LiveServer) -> str:
    return str(server.submit("true")["id"])


@pytest.fixture
def http(server: LiveServer) -> Iterator[httpx.Client]:
    with server.http() as made:
        yield made


def put(http: httpx.Client, job: str, path: str, data: bytes, **headers: str) -> httpx.Response:
    return http.put(f"/v1/runs/{job}/artifacts/{path}", content=data, headers=headers)


class TestArtifacts:
    def test_there_and_back(self, http: httpx.Client, job: str) -> None:
        made = put(http, job, "plots/loss%20é.png", b"PNG").json()
        assert (made["path"], made["digest"], made["bytes"]) == ("plots/loss é.png", sha("PNG"), 3)
        answer = http.get(f"/v1/runs/{job}/artifacts/plots/loss%20é.png")
        assert (answer.content, answer.headers["content-type"]) == (b"PNG", "image/png")
        assert answer.headers["content-disposition"] == "inline; filename*=UTF-8''loss%20%C3%A9.png"
        top = http.get(f"/v1/runs/{job}/artifacts").json()
        assert {"path": "plots", "files": 1, "bytes": 3} in top["folders"]
        below = http.get(f"/v1/runs/{job}/artifacts", params={"prefix": "plots"}).json()
        assert [one["path"] for one in below["files"]] == ["plots/loss é.png"]
        assert http.head(f"/v1/runs/{job}/artifacts/plots/loss%20é.png").headers["content-length"] == "3"
        gone = http.delete(f"/v1/runs/{job}/artifacts/plots").json()
        assert gone["removed"] == ["plots/loss é.png"]
        assert http.get(f"/v1/runs/{job}/artifacts/plots/loss%20é.png").status_code == 404

    def test_by_the_digest_of_what_is_there(self, http: httpx.Client, job: str) -> None:
        digest = put(http, job, "first", b"same").json()["digest"]
        params = {"digest": digest, "kind": "checkpoint", "step": 40, "load": "torch.load(FILE)", "world": 8}
        made = http.put(f"/v1/runs/{job}/artifacts/second", params=params).json()
        assert (made["bytes"], made["kind"], made["doc"]["load"], made["doc"]["world"]) == (
            4, "checkpoint", "torch.load(FILE)", 8,
        )  # fmt: skip
        missing = http.put(f"/v1/runs/{job}/artifacts/third", params={"digest": sha("not there")})
        assert missing.status_code == 404

    @pytest.mark.parametrize(
        ("name", "sent", "kind", "way"),
        [
            ("a.html", "text/html", "application/octet-stream", "attachment"),
            ("a.svg", "image/svg+xml", "application/octet-stream", "attachment"),
            ("a.png", "text/html", "application/octet-stream", "attachment"),
            ("a.txt", "text/plain", "text/plain; charset=utf-8", "inline"),
            ("a.js", "text/javascript", "application/octet-stream", "attachment"),
            ("a.json", "application/json", "application/json", "inline"),
            ("a.bin", "nonsense\tx", "application/octet-stream", "attachment"),
            ("a.xhtml", "application/octet-stream", "application/octet-stream", "attachment"),
        ],
    )
    def test_nothing_runs_in_a_browser(
        self, http: httpx.Client, job: str, name: str, sent: str, kind: str, way: str
    ) -> None:
        put(http, job, f"safe/{name}", b"<script>1</script>", **{"content-type": sent})
        answer = http.get(f"/v1/runs/{job}/artifacts/safe/{name}")
        assert answer.headers["content-type"] == kind
        assert answer.headers["content-disposition"].startswith(way)
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert "sandbox" in answer.headers["content-security-policy"]

    @pytest.mark.parametrize("path", ["%2e%2e/x", "a/%2e%2e/b", "%2fetc/passwd", "a%5cb", "a%00b", "a//b", "x" * 300])
    def test_paths_that_lead_elsewhere(self, http: httpx.Client, job: str, path: str) -> None:
        answer = put(http, job, path, b"x")
        assert answer.status_code in (400, 404, 405), answer.text
        assert answer.json()["error"]["message"]

    def test_ranges(self, http: httpx.Client, job: str) -> None:
        put(http, job, "digits", b"0123456789")
        wanted = {"bytes=2-4": b"234", "bytes=7-": b"789", "bytes=-2": b"89", "bytes=8-99": b"89"}
        for asked, data in wanted.items():
            answer = http.get(f"/v1/runs/{job}/artifacts/digits", headers={"range": asked})
            assert (answer.status_code, answer.content) == (206, data)
        assert answer.headers["content-range"] == "bytes 8-9/10"
        for asked in ("bytes=10-", "bytes=-0", "bytes=5-4"):
            answer = http.get(f"/v1/runs/{job}/artifacts/digits", headers={"range": asked})
            assert (answer.status_code, answer.headers["content-range"]) == (416, "bytes */10")
        for asked in ("bytes=1-2,4-5", "lines=1-2", "bytes=a-b", "bytes=-"):
            answer = http.get(f"/v1/runs/{job}/artifacts/digits", headers={"range": asked})
            assert (answer.status_code, len(answer.content)) == (200, 10)
        again = http.get(f"/v1/runs/{job}/artifacts/digits", headers={"if-none-match": f'"{sha("0123456789")}"'})
        assert (again.status_code, again.content) == (304, b"")


class TestBlobs:
    def test_missing_and_upload(self, http: httpx.Client) -> None:
        digests = [sha("one"), sha("two")]
        assert http.post("/v1/blobs/missing", json={"digests": digests}).json()["missing"] == digests
        assert http.put(f"/v1/blobs/{digests[0]}", content=b"one").status_code == 201
        frames = b"".join(f"{sha(text)}{len(text):08x}{text}".encode() for text in ("one", "two", ""))
        assert http.post("/v1/blobs/bundle", content=frames).json() == {"blobs": 3}
        assert http.post("/v1/blobs/missing", json={"digests": digests}).json()["missing"] == []
        wrong = http.put(f"/v1/blobs/{sha('three')}", content=b"other")
        assert wrong.status_code == 400
        assert "send it again" in wrong.json()["error"]["hint"]

    @pytest.mark.parametrize("body", [b"x", b"0" * 72, b"f" * 71, f"{sha('a')}00000001b".encode(), b"\xff" * 80,
        f"{sha('a')}-0000001a".encode(), f"{sha('a')}00000009a".encode()])  # fmt: skip
    def test_bundles_that_are_damaged(self, http: httpx.Client, body: bytes) -> None:
        answer = http.post("/v1/blobs/bundle", content=body)
        assert answer.status_code == 400, answer.text

    def test_a_launcher_uploads_with_its_own_token(self, server: LiveServer) -> None:
        live = server.submit("sleep 600")["id"]  # one that is over has shipped everything, and takes no more
        server.wait(live, "running")
        token = load_keyring(server.home / "key").attempt_token(live, 1)
        with server.http(token) as http:
            assert http.head(f"/v1/ingest/blobs/{sha('from a rank')}").status_code == 404
            assert http.put(f"/v1/ingest/blobs/{sha('from a rank')}", content=b"from a rank").status_code == 204
            assert http.head(f"/v1/ingest/blobs/{sha('from a rank')}").status_code == 200
            assert http.put(f"/v1/ingest/blobs/{sha('x')}", content=b"y").status_code == 400
            assert http.get(f"/v1/blobs/{sha('from a rank')}").status_code == 401
        server.post(f"/v1/jobs/{live}/stop", {"force": True})
        with server.http(load_keyring(server.home / "key").attempt_token("nobody-9", 1)) as http:
            assert http.put(f"/v1/ingest/blobs/{sha('x')}", content=b"x").status_code == 410
        with server.http("att_forged") as http:
            assert http.put(f"/v1/ingest/blobs/{sha('x')}", content=b"x").status_code == 401

    def test_only_through_a_run_that_one_may_see(self, server: LiveServer, http: httpx.Client, job: str) -> None:
        digest = put(http, job, "secret", b"of the default project").json()["digest"]
        code = {"train.py": [sha("code"), 4, 0o644]}
        tree = json.dumps(code).encode()
        for data in (b"code", tree, b"loose"):
            http.put(f"/v1/blobs/{sha(data)}", content=data)
        spec = {"name": "with-code", "run": "true", "workdir": str(server.home)}
        other = server.post("/v1/jobs", {"spec": spec, "code": {"tree": sha(tree), "files": 1, "bytes": 4}})["id"]
        server.post("/v1/projects", {"name": "elsewhere"})
        token = server.post("/v1/tokens", {"name": "eve", "user": "eve", "role": "member"})["token"]
        http.put("/v1/projects/elsewhere/members/eve", json={"role": "member"}).raise_for_status()
        assert http.get(f"/v1/blobs/{digest}").content == b"of the default project"
        assert http.get(f"/v1/blobs/{sha('code')}").status_code == 404  # a snapshot's files by its run alone
        assert http.get(f"/v1/blobs/{sha('code')}", params={"run": other}).content == b"code"
        assert http.get(f"/v1/blobs/{sha('code')}", params={"run": job}).status_code == 404
        assert http.get(f"/v1/blobs/{sha('loose')}").status_code == 404
        with server.http(token) as eve:
            for path in (f"/v1/blobs/{digest}", f"/v1/blobs/{digest}?run={job}", f"/v1/runs/{job}/artifacts/secret"):
                assert eve.get(path).status_code == 404
            assert eve.get(f"/v1/runs/{other}/code").status_code == 404
            assert put(eve, job, "x", b"x").status_code == 404
            assert eve.post("/v1/artifacts/collect").status_code == 403

    def test_a_viewer_reads_and_writes_nothing(self, server: LiveServer, http: httpx.Client, job: str) -> None:
        token = server.post("/v1/tokens", {"name": "vic", "user": "vic", "role": "member"})["token"]
        http.put("/v1/projects/default/members/vic", json={"role": "viewer"}).raise_for_status()
        put(http, job, "shown", b"shown")
        with server.http(token) as vic:
            assert vic.get(f"/v1/runs/{job}/artifacts/shown").content == b"shown"
            assert put(vic, job, "shown", b"x").status_code == 403
            assert vic.delete(f"/v1/runs/{job}/artifacts/shown").status_code == 403
            assert vic.put(f"/v1/blobs/{sha('x')}", content=b"x").status_code == 403


def test_a_large_file_takes_no_memory(server: LiveServer, http: httpx.Client, job: str) -> None:
    """64 MB up and down, three at a time; the server's peak grows by far less than one of them."""
    assert server.process is not None
    status = Path(f"/proc/{server.process.pid}/status")

    def peak() -> int:
        return next(int(line.split()[1]) for line in status.read_text().splitlines() if line.startswith("VmHWM")) >> 10

    block = random.Random(3).randbytes(1 << 20)
    put(http, job, "warm", block).raise_for_status()
    before = peak()

    def there_and_back(number: int) -> int:
        size = 0
        with server.http() as own:
            body = (bytes([number]) + block[1:] for _ in range(64))
            own.put(f"/v1/runs/{job}/artifacts/large-{number}", content=body).raise_for_status()
            with own.stream("GET", f"/v1/runs/{job}/artifacts/large-{number}") as answer:
                for data in answer.iter_raw():
                    size += len(data)
        return size

    with ThreadPoolExecutor(3) as lanes:
        assert list(lanes.map(there_and_back, range(3))) == [64 << 20] * 3
    assert peak() - before < 48


def test_an_upload_that_is_cut_off_leaves_nothing(server: LiveServer, job: str) -> None:
    def half() -> Iterator[bytes]:
        yield b"x" * (3 << 20)
        raise RuntimeError("the client is killed")

    with server.http() as own, pytest.raises(RuntimeError):
        own.put(f"/v1/runs/{job}/artifacts/half", content=half(), headers={"content-length": str(9 << 20)})
    with server.http() as own:
        assert put(own, job, "whole", b"x").status_code == 201  # and the server goes on
        assert own.get(f"/v1/runs/{job}/artifacts/half").status_code == 404
    until(lambda: not list((server.home / "blobs" / "incoming").iterdir()), "the half file to go")
