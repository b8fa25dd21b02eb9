"""Blob store in object storage: S3 and what speaks its protocol, Google Cloud Storage, Azure Blob Storage.

Blobs are staged on the local disk, checked, and uploaded by digest.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from muster.core.errors import ConfigError, Unavailable
from muster.object_store import ObjectStoreError, object_store_errors, open_object_store
from muster.track.blob_store import Stage, gone, new_stage, tidy_stages

if TYPE_CHECKING:
    from obstore.store import ObjectStore

PART_BYTES: Final = 32 << 20  # bytes of a part; larger blobs are uploaded in parts, several at once
READ_BYTES: Final = 8 << 20  # bytes of one request
_LANES: Final = 8
_STAGES: Final = "incoming"


@dataclass
class ObjectBlobs:
    """Blobs under a prefix of a bucket. `folder` is where they are staged."""

    store: ObjectStore = field(repr=False)
    folder: Path
    where: str  # shown to users
    part_bytes: int = PART_BYTES

    def stage(self) -> Stage:
        return new_stage(self.folder / _STAGES)

    def keep(self, stage: Stage) -> None:
        """Uploads in any case, even if the object exists: this resets the age of an object that a crash left behind.
        An object is there as a whole, or not at all."""
        stage.finish()
        try:
            with self._storage_errors():
                self.store.put(_key(stage.digest), stage.path, chunk_size=self.part_bytes, max_concurrency=_LANES)
        finally:
            stage.drop()

    def keep_many(self, stages: Sequence[Stage]) -> None:
        with ThreadPoolExecutor(_LANES, "muster-keep") as lanes:
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
        with self._storage_errors():
            try:
                return self.store.head(_key(digest))["size"]
            except FileNotFoundError:
                return None

    def delete(self, digest: str) -> None:
        with self._storage_errors():
            try:
                self.store.delete(_key(digest))
            except FileNotFoundError:
                pass

    def digests(self) -> Iterator[tuple[str, float]]:
        now = time.time()
        with self._storage_errors():
            for page in self.store.list():
                for each in page:
                    name = each["path"].rpartition("/")[2]
                    if len(name) == 64:
                        yield name, now - each["last_modified"].timestamp()

    def tidy(self, age: float) -> int:
        return tidy_stages(self.folder / _STAGES, age)

    def _range(self, digest: str, start: int, stop: int) -> bytes:
        with self._storage_errors():
            try:
                found = bytes(self.store.get_range(_key(digest), start=start, end=stop))
            except FileNotFoundError:
                found = b""
        if len(found) != stop - start:
            raise gone(digest, self.where)
        return found

    @contextmanager
    def _storage_errors(self) -> Iterator[None]:
        try:
            with object_store_errors(self.where):
                yield
        except ObjectStoreError as error:
            raise Unavailable(str(error), error.hint) from None


def open_objects(setting: str, home: Path, **options: Any) -> ObjectBlobs:
    """Opens s3://bucket/prefix, gs://bucket/prefix or az://container/prefix. `options`: see obstore."""
    try:
        store = open_object_store(setting, **options)
    except ObjectStoreError as error:
        raise ConfigError(f"artifacts: {error}", error.hint) from None
    return ObjectBlobs(store, home / "blobs", setting.rstrip("/"))


def _key(digest: str) -> str:
    return f"{digest[:2]}/{digest}"
