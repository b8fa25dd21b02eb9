"""Content in a real S3 server: the same behaviour as on a disk, in parts where it is large."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from content_kit import Content, content, sha

from live import live_server
from muster.core.errors import ConfigError, Invalid, NotFound, Unavailable
from muster.objects.s3 import S3Client
from muster.track.blob_store_s3 import S3Blobs
from muster.track.open_blob_store import open_blob_store
from s3_kit import KEY, SECRET, S3Server, s3_server

pytestmark = pytest.mark.component("SeaweedFS")
PART = 5 << 20


@pytest.fixture(scope="module")
def server() -> Iterator[S3Server]:
    with s3_server() as made:
        yield made


def shelf_of(server: S3Server, bucket: str, folder: Path, secret: str = SECRET) -> S3Blobs:
    client = S3Client(bucket, server.endpoint, "us-east-1", KEY, secret, None, 2)
    return S3Blobs(client, "some/prefix/", folder, part_bytes=PART)


@pytest.fixture
def kept(server: S3Server, tmp_path: Path) -> Iterator[Content]:
    with content(f"sqlite:///{tmp_path}/m.db", shelf_of(server, server.bucket(), tmp_path)) as made:
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
    wrong = shelf_of(server, server.bucket(), tmp_path, secret="not-the-secret")
    with content(f"sqlite:///{tmp_path}/m.db", wrong) as kept:
        with pytest.raises(Unavailable, match="403") as told:
            kept.add("x")
        assert "not-the-secret" not in str(told.value)
        assert kept.blobs.missing([sha("x")]) == [sha("x")]


def test_no_keys_in_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID", raising=False)
    with pytest.raises(ConfigError, match="AWS_ACCESS_KEY_ID"):
        open_blob_store("s3://bucket/prefix", tmp_path)
    with pytest.raises(ConfigError, match="s3://bucket"):
        open_blob_store("s3://", tmp_path)


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
        found = server.client(bucket).request("GET", f"team/{sha('in a bucket')[:2]}/{sha('in a bucket')}")
        assert found.body == b"in a bucket"
