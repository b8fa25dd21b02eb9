"""Content in object storage, a real S3 server: the same behaviour as on a disk, in parts where it is large."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import ClassVar

import pytest
from content_kit import Content, content, sha

from gang_kit import free_port
from live import live_server
from muster.core.errors import ConfigError, Invalid, NotFound, Unavailable
from muster.track.blob_store_objects import ObjectBlobs, open_objects
from muster.track.open_blob_store import open_blob_store
from s3_kit import KEY, SECRET, S3Server, s3_server

pytestmark = pytest.mark.component("SeaweedFS")
PART = 5 << 20


@pytest.fixture(scope="module")
def server() -> Iterator[S3Server]:
    with s3_server() as made:
        yield made


@pytest.fixture(autouse=True)
def _no_account(monkeypatch: pytest.MonkeyPatch) -> None:
    """The caller's own account is not used."""
    for name in list(os.environ):
        if name.startswith(("AWS_", "AZURE_", "GOOGLE_")):
            monkeypatch.delenv(name)


def blobs_in(server: S3Server, bucket: str, folder: Path, secret: str = SECRET) -> ObjectBlobs:
    keys = {"endpoint": server.endpoint, "access_key_id": KEY, "secret_access_key": secret}
    made = open_objects(f"s3://{bucket}/some/prefix", folder, client_options={"allow_http": True}, **keys)
    made.part_bytes = PART
    return made


@pytest.fixture
def kept(server: S3Server, tmp_path: Path) -> Iterator[Content]:
    with content(f"sqlite:///{tmp_path}/m.db", blobs_in(server, server.bucket(), tmp_path)) as made:
        yield made


def there(kept: Content) -> list[str]:
    return sorted(digest for digest, _ in kept.blobs.blob_store.digests())


def test_put_read_and_collect(kept: Content, tmp_path: Path) -> None:
    small, large = b"small", random.Random(2).randbytes(2 * PART + 77)
    assert kept.blobs.put([b"sm", b"all"], sha(small), 5) == (sha(small), 5)
    assert kept.add(large) == sha(large)
    assert kept.add(b"") == sha(b"")
    assert there(kept) == sorted([sha(small), sha(large), sha(b"")])
    assert b"".join(kept.blobs.open(sha(large))) == large
    assert b"".join(kept.blobs.open(sha(large), PART - 3, PART + 3)) == large[PART - 3 : PART + 3]
    assert list(kept.blobs.open(sha(b""))) == []
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and "incoming" in path.parts]
    kept.artifacts.put("run", "large.bin", sha(large))
    kept.pass_days(2)
    assert kept.blobs.collect().blobs == 2
    assert there(kept) == [sha(large)]


def test_what_is_wrong_leaves_nothing(kept: Content) -> None:
    with pytest.raises(Invalid):
        kept.blobs.put([b"x"], sha("y"))
    assert there(kept) == []
    digest = kept.add("lost")
    kept.blobs.blob_store.delete(digest)
    with pytest.raises(NotFound, match="backup"):
        kept.blobs.open(digest)
    kept.add("lost")
    assert b"".join(kept.blobs.open(digest)) == b"lost"


def test_a_refused_key_is_told_without_it(server: S3Server, tmp_path: Path) -> None:
    wrong = blobs_in(server, server.bucket(), tmp_path, secret="not-the-secret")
    with content(f"sqlite:///{tmp_path}/m.db", wrong) as kept:
        with pytest.raises(Unavailable, match="403") as told:
            kept.add("x")
        assert "not-the-secret" not in str(told.value)
        assert kept.blobs.missing([sha("x")]) == [sha("x")]


class Role(BaseHTTPRequestHandler):
    """What a machine in the cloud asks for the credentials of its role."""

    lasts = 3600.0  # seconds for which credentials hold
    given: ClassVar[list[str]] = []

    def do_PUT(self) -> None:
        self.answer("a session")

    def do_GET(self) -> None:
        if not self.path.endswith("/trainer"):
            return self.answer("trainer")
        until = datetime.now(UTC) + timedelta(seconds=self.lasts)
        self.given.append(self.path)
        keys = {"AccessKeyId": KEY, "SecretAccessKey": SECRET, "Token": "", "Expiration": until.isoformat()}
        return self.answer(json.dumps({"Code": "Success", "Type": "AWS-HMAC", "LastUpdated": "", **keys}))

    def answer(self, text: str) -> None:
        self.send_response(200)
        self.send_header("content-length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, format: str, *args: object) -> None: ...


@pytest.fixture
def role(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Role]]:
    Role.given.clear()
    with ThreadingHTTPServer(("127.0.0.1", 0), Role) as http:
        thread = Thread(target=http.serve_forever, args=(0.01,))
        thread.start()
        monkeypatch.setenv("AWS_METADATA_ENDPOINT", f"http://127.0.0.1:{http.server_port}")
        yield Role
        http.shutdown()
        thread.join()


def test_without_keys_the_role_of_the_machine_is_used_and_renewed(
    server: S3Server, role: type[Role], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", server.endpoint)
    monkeypatch.setattr(role, "lasts", 1.0)  # so short that each request needs new ones
    blobs = open_blob_store(f"s3://{server.bucket()}/team", tmp_path)
    with content(f"sqlite:///{tmp_path}/m.db", blobs) as kept:
        digest = kept.add("by a role")
        assert b"".join(kept.blobs.open(digest)) == b"by a role"
    assert len(role.given) >= 2


def test_no_account_at_all_says_where_one_comes_from(
    server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", server.endpoint)
    monkeypatch.setenv("AWS_METADATA_ENDPOINT", f"http://127.0.0.1:{free_port()}")  # nobody is there
    blobs = open_objects("s3://bucket/prefix", tmp_path, retry_config={"max_retries": 0})
    with (
        content(f"sqlite:///{tmp_path}/m.db", blobs) as kept,
        pytest.raises(Unavailable) as told,
    ):
        kept.add("x")
    assert "AWS_ACCESS_KEY_ID" in str(told.value.hint)


@pytest.mark.parametrize("setting", ["s3://", "gs:///", "az://", "s3:bucket"])
def test_an_incomplete_address_is_refused(setting: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as told:
        open_blob_store(setting, tmp_path)
    assert "s3://bucket" in str(told.value.hint)


def test_each_scheme_opens_its_own_service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", "team")
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", "a2V5")
    found = {}
    for setting in ("s3://bucket/some/prefix", "az://container/some/prefix"):
        blobs = open_blob_store(setting, tmp_path)
        assert isinstance(blobs, ObjectBlobs)
        assert blobs.where == setting
        found[setting[:2]] = type(blobs.store).__name__
    assert found == {"s3": "S3Store", "az": "AzureStore"}


def test_a_server_that_keeps_its_content_there(
    server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in server.env.items():
        monkeypatch.setenv(name, value)
    bucket = server.bucket()
    with live_server(tmp_path / "home", config=f"artifacts = 's3://{bucket}/team'\n") as muster, muster.http() as http:
        job = muster.submit("true")["id"]
        made = http.put(f"/v1/runs/{job}/artifacts/notes/a.txt", content=b"in a bucket")
        assert made.status_code == 201, made.text
        assert http.get(f"/v1/runs/{job}/artifacts/notes/a.txt").content == b"in a bucket"
        key = f"team/{sha('in a bucket')[:2]}/{sha('in a bucket')}"
        assert server.client().get_object(Bucket=bucket, Key=key)["Body"].read() == b"in a bucket"
