"""Checkpoints in S3-compatible object storage. A checkpoint is committed by writing its manifest, the last object."""

from __future__ import annotations

import re
import xml.etree.ElementTree as Xml
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from muster.runtime import manifest
from muster.runtime.checkpoints import COMMITTED
from muster.train.checkpoint.owner import Hold, LeaseHold, Seen
from muster.train.checkpoint.s3_client import CheckpointS3, client
from muster.train.checkpoint.store import BLOCK, Committed, checksum
from muster.train.errors import CheckpointDamaged, CheckpointError

PART_BYTES: Final = 32 << 20  # of a multipart upload; at least 5 MB, except the last
PARTS_MAX: Final = 10_000
THREADS: Final = 8
_NAMESPACE: Final = re.compile(rb' xmlns="[^"]*"')


@dataclass
class S3:
    """A prefix in a bucket, with the same names as a folder on a disk."""

    client: CheckpointS3
    prefix: str  # empty, or ending with a slash
    part_bytes: int = PART_BYTES
    _pool: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(THREADS, "muster-s3"), repr=False)

    @property
    def where(self) -> str:
        return f"s3://{self.client.bucket}/{self.prefix}".rstrip("/")

    def put(self, name: str, data: memoryview) -> int:
        data = data.cast("B")
        if len(data) <= self.part_bytes:
            self.client.request("PUT", self.prefix + name, body=data)
            return checksum(data)
        return self._multipart(self.prefix + name, data)

    def get(self, name: str) -> bytes:
        return self.client.request("GET", self.prefix + name).body

    def read(self, name: str, at: int, into: memoryview) -> None:
        left = into.cast("B")
        while len(left):
            block = left[: 4 * BLOCK]
            headers = {"range": f"bytes={at}-{at + len(block) - 1}"}
            reply = self.client.request("GET", self.prefix + name, headers=headers, into=block, accept=(404, 416))
            if reply.status != 206:
                raise CheckpointDamaged(f"{self.where}/{name} has no {len(block)} bytes from {at} on.")
            at += len(block)
            left = left[len(block) :]

    def files(self, folder: str) -> dict[str, int]:
        return {name.removeprefix(f"{folder}/"): size for name, size in self._objects(f"{folder}/")}

    def committed(self) -> list[Committed]:
        found = []
        for folder, names in self._folders().items():
            if manifest.MANIFEST in names:
                try:
                    found.append(Committed(folder, manifest.decode(self.get(f"{folder}/{manifest.MANIFEST}"))))
                except (ValueError, CheckpointError) as error:
                    found.append(Committed(folder, None, str(error)))
        return sorted(found, key=lambda each: each.manifest.serial if each.manifest else -1, reverse=True)

    def begin(self, step: int) -> str:
        """Uses the final name at once: without a manifest it doesn't count as a checkpoint."""
        suffixes = [
            int(found[2] or 0) for found in map(COMMITTED.fullmatch, self._folders()) if found and int(found[1]) == step
        ]
        return f"step-{step:09d}.{max(suffixes) + 1}" if suffixes else f"step-{step:09d}"

    def commit(self, folder: str, step: int, encoded: bytes) -> str:
        self.put(f"{folder}/{manifest.MANIFEST}", memoryview(encoded))
        for other in self._folders():
            found = COMMITTED.fullmatch(other)
            if found and int(found[1]) == step and other != folder:
                self.delete(other)
        return folder

    def abandon(self, folder: str) -> None:
        with suppress(CheckpointError):
            self._abort_uploads(f"{folder}/")
        self.delete(folder)

    def delete(self, folder: str) -> None:
        with suppress(CheckpointError):
            self.client.request("DELETE", f"{self.prefix}{folder}/{manifest.MANIFEST}", accept=(404,))
            names = [name for name, _ in self._objects(f"{folder}/")]
            list(self._pool.map(self.drop, names))

    def clean(self) -> None:
        self._abort_uploads("")
        for folder, names in self._folders().items():
            if manifest.MANIFEST not in names:
                self.delete(folder)

    def hold(self) -> Hold:
        return LeaseHold(self, self.where)

    def room(self) -> str:
        return f"at {self.client.endpoint}"

    def peek(self, name: str) -> Seen | None:
        reply = self.client.request("GET", self.prefix + name, accept=(404,))
        return Seen(reply.body, reply.headers.get("etag", ""), reply.age()) if reply.status != 404 else None

    def swap(self, name: str, data: bytes, tag: str | None) -> str | None:
        headers = {"if-none-match": "*"} if tag is None else {"if-match": tag}
        reply = self.client.request("PUT", self.prefix + name, headers=headers, body=data, accept=(404, 409, 412))
        return reply.headers.get("etag", "") if reply.status // 100 == 2 else None

    def drop(self, name: str) -> None:
        self.client.request("DELETE", self.prefix + name, accept=(404,))

    def _multipart(self, key: str, data: memoryview) -> int:
        """Uploads the parts in parallel. The last request creates the object, completely or not at all."""
        upload = _text(self.client.request("POST", key, {"uploads": ""}).body, "UploadId")
        size = max(self.part_bytes, -(-len(data) // PARTS_MAX))
        pieces = [data[at : at + size] for at in range(0, len(data), size)]
        try:
            tags = self._pool.map(lambda each: self._part(key, upload, *each), enumerate(pieces, 1))
            crc = 0
            for piece in pieces:
                crc = checksum(piece, crc)
            listed = "".join(
                f"<Part><PartNumber>{number}</PartNumber><ETag>{tag}</ETag></Part>"
                for number, tag in enumerate(tags, 1)
            )
            body = f"<CompleteMultipartUpload>{listed}</CompleteMultipartUpload>".encode()
            reply = self.client.request("POST", key, {"uploadId": upload}, body=body, accept=(404,))
            # A retry may find no upload because the first try completed it. An error may come with status 200.
            joined = reply.status == 404 and self._size_of(key) == len(data)
            if b"<Error>" in reply.body and not joined:
                raise CheckpointError(f"s3://{self.client.bucket}/{key}: {reply.body[:300].decode(errors='replace')}")
        except BaseException:
            with suppress(CheckpointError):
                self.client.request("DELETE", key, {"uploadId": upload}, accept=(404,))
            raise
        return crc

    def _size_of(self, key: str) -> int | None:
        reply = self.client.request("HEAD", key, accept=(404,))
        return int(reply.headers.get("content-length", 0)) if reply.status == 200 else None

    def _part(self, key: str, upload: str, number: int, piece: memoryview) -> str:
        query = {"partNumber": str(number), "uploadId": upload}
        return self.client.request("PUT", key, query, body=piece).headers.get("etag", "")

    def _abort_uploads(self, under: str) -> None:
        while True:
            page = _parse(self.client.request("GET", "", {"uploads": "", "prefix": self.prefix + under}).body)
            for each in page.findall("Upload"):
                query = {"uploadId": each.findtext("UploadId", "")}
                self.client.request("DELETE", each.findtext("Key", ""), query, accept=(404,))
            if page.findtext("IsTruncated") != "true":
                return

    def _folders(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for name, _ in self._objects("step-"):
            folder, _, rest = name.partition("/")
            if rest and COMMITTED.fullmatch(folder):
                found.setdefault(folder, []).append(rest)
        return found

    def _objects(self, under: str) -> Iterator[tuple[str, int]]:
        query = {"list-type": "2", "prefix": self.prefix + under}
        while True:
            page = _parse(self.client.request("GET", "", query).body)
            for each in page.findall("Contents"):
                yield each.findtext("Key", "").removeprefix(self.prefix), int(each.findtext("Size", "0"))
            if page.findtext("IsTruncated") != "true":
                return
            query["continuation-token"] = page.findtext("NextContinuationToken", "")


def open_s3(where: str) -> S3:
    """Opens s3://bucket/prefix."""
    bucket, _, prefix = where.removeprefix("s3://").partition("/")
    if not bucket:
        raise CheckpointError(f"{where!r}: expected s3://bucket/prefix.")
    prefix = prefix.strip("/")
    return S3(client(bucket), f"{prefix}/" if prefix else "")


def _parse(body: bytes) -> Xml.Element:
    return Xml.fromstring(_NAMESPACE.sub(b"", body, count=1))  # noqa: S314 (from the server that the user named)


def _text(body: bytes, name: str) -> str:
    found = _parse(body).findtext(name)
    if not found:
        raise CheckpointError(f"the S3 server's answer has no {name}: {body[:200].decode(errors='replace')}")
    return found
