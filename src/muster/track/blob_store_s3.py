"""Blob store in S3-compatible object storage. Blobs are staged on the local disk, checked, and uploaded by digest."""

from __future__ import annotations

import re
import time
import xml.etree.ElementTree as Xml
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import BinaryIO, Final

from muster.core.errors import ConfigError, Unavailable
from muster.objects.s3 import S3Client, S3Error, account
from muster.track.blob_store import Stage, gone, new_stage, tidy_stages

PART_BYTES: Final = 32 << 20  # bytes of a part in a multipart upload; at least 5 MB, except for the last
PARTS_MAX: Final = 10_000
READ_BYTES: Final = 8 << 20  # bytes of one request
_LANES: Final = 8
_STAGES: Final = "incoming"
_NAMESPACE: Final = re.compile(rb' xmlns="[^"]*"')


class S3Blobs:
    """Blobs under a prefix of a bucket. `folder` is where they are staged."""

    def __init__(self, client: S3Client, prefix: str, folder: Path, part_bytes: int = PART_BYTES) -> None:
        self._client, self._prefix, self._folder, self._part_bytes = client, prefix, folder, part_bytes
        self.where = f"s3://{client.bucket}/{prefix}".rstrip("/")

    def stage(self) -> Stage:
        return new_stage(self._folder / _STAGES)

    def keep(self, stage: Stage) -> None:
        """Uploads in any case, even if the object exists: this resets the age of an object that a crash left behind."""
        stage.finish()
        key = self._key(stage.digest)
        try:
            with stage.path.open("rb", buffering=0) as file, self._told():
                if stage.size <= self._part_bytes:
                    self._client.request("PUT", key, body=_read(file, stage.size))
                else:
                    self._multipart(key, file, stage.size)
        finally:
            stage.drop()

    def keep_many(self, stages: Sequence[Stage]) -> None:
        with ThreadPoolExecutor(_LANES, "muster-s3") as lanes:
            list(lanes.map(self.keep, stages))

    def read(self, digest: str, start: int, stop: int) -> Iterator[bytes]:
        """Requests the first block at once, so that a missing blob is found before the caller sends anything."""
        first = self._range(digest, start, min(stop, start + READ_BYTES)) if start < stop else b""

        def blocks() -> Iterator[bytes]:
            yield first
            for at in range(start + len(first), stop, READ_BYTES):
                yield self._range(digest, at, min(stop, at + READ_BYTES))

        return blocks() if first else iter(())

    def size(self, digest: str) -> int | None:
        with self._told():
            reply = self._client.request("HEAD", self._key(digest), accept=(404,))
        return int(reply.headers.get("content-length", 0)) if reply.status == 200 else None

    def delete(self, digest: str) -> None:
        with self._told():
            self._client.request("DELETE", self._key(digest), accept=(404,))

    def digests(self) -> Iterator[tuple[str, float]]:
        query, now = {"list-type": "2", "prefix": self._prefix}, time.time()
        while True:
            with self._told():
                page = _parse(self._client.request("GET", "", query).body)
            for each in page.findall("Contents"):
                name = each.findtext("Key", "").rpartition("/")[2]
                changed = datetime.fromisoformat(each.findtext("LastModified", "").replace("Z", "+00:00"))
                if len(name) == 64:
                    yield name, now - changed.timestamp()
            if page.findtext("IsTruncated") != "true":
                return
            query["continuation-token"] = page.findtext("NextContinuationToken", "")

    def tidy(self, age: float) -> int:
        return tidy_stages(self._folder / _STAGES, age)

    def _range(self, digest: str, start: int, stop: int) -> bytes:
        headers = {"range": f"bytes={start}-{stop - 1}"}
        with self._told():
            reply = self._client.request("GET", self._key(digest), headers=headers, accept=(404, 416))
        if reply.status in (404, 416) or len(reply.body) != stop - start:
            raise gone(digest, self.where)
        return reply.body

    def _multipart(self, key: str, file: BinaryIO, size: int) -> None:
        """Uploads in parts. The object exists once the last request succeeds, or not at all."""
        upload = _parse(self._client.request("POST", key, {"uploads": ""}).body).findtext("UploadId", "")
        part = max(self._part_bytes, -(-size // PARTS_MAX))
        try:
            tags = []
            for number, at in enumerate(range(0, size, part), 1):
                query = {"partNumber": str(number), "uploadId": upload}
                body = _read(file, min(part, size - at))
                tags.append(self._client.request("PUT", key, query, body=body).headers.get("etag", ""))
            listed = "".join(
                f"<Part><PartNumber>{n}</PartNumber><ETag>{tag}</ETag></Part>" for n, tag in enumerate(tags, 1)
            )
            body = f"<CompleteMultipartUpload>{listed}</CompleteMultipartUpload>".encode()
            reply = self._client.request("POST", key, {"uploadId": upload}, body=body, accept=(404,))
            # A retry may get 404 because the first try has completed the upload. An error may come with status 200.
            joined = self._client.request("HEAD", key, accept=(404,))
            if b"<Error>" in reply.body and joined.headers.get("content-length") != str(size):
                raise S3Error(f"{self.where}: {reply.body[:300].decode(errors='replace')}")
        except BaseException:
            with suppress(S3Error):
                self._client.request("DELETE", key, {"uploadId": upload}, accept=(404,))
            raise

    def _key(self, digest: str) -> str:
        return f"{self._prefix}{digest[:2]}/{digest}"

    @contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except S3Error as error:
            raise Unavailable(str(error), "Check the object store, then try again.") from error


def open_s3(setting: str, home: Path) -> S3Blobs:
    """Opens `s3://bucket/prefix`; keys and endpoint come from the environment."""
    bucket, _, prefix = setting.removeprefix("s3://").partition("/")
    if not bucket:
        raise ConfigError(f"artifacts is {setting!r}.", "Write it as s3://bucket/prefix.")
    try:
        client = S3Client(*account(bucket))
    except S3Error as error:
        raise ConfigError(f"artifacts is {setting!r}: {error}", "Set them where the server is started.") from error
    prefix = prefix.strip("/")
    return S3Blobs(client, f"{prefix}/" if prefix else "", home / "blobs")


def _read(file: BinaryIO, size: int) -> bytes:
    """Reads exactly `size` bytes: an unbuffered file may return fewer at a time."""
    found = bytearray()
    while len(found) < size and (data := file.read(size - len(found))):
        found += data
    return bytes(found)


def _parse(body: bytes) -> Xml.Element:
    return Xml.fromstring(_NAMESPACE.sub(b"", body, count=1))  # noqa: S314 (from the server that the settings name)
