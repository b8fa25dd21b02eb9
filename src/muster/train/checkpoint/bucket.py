"""Checkpoints in object storage. A checkpoint is committed by writing its manifest, the last object."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from muster.object_store import ObjectStoreError, object_store_errors, open_object_store
from muster.runtime import manifest
from muster.runtime.checkpoint_search import COMMITTED
from muster.train.checkpoint.owner import Hold, LeaseHold, Seen, Tag
from muster.train.checkpoint.store import BLOCK, Committed, checksum
from muster.train.errors import CheckpointDamaged, CheckpointError

if TYPE_CHECKING:
    from obstore import ObjectMeta, PutMode, PutResult
    from obstore.store import ObjectStore

FILE_BYTES: Final = 64 << 20  # in one request: of an upload in parts that is cut off, providers keep the parts
THREADS: Final = 8
CLOCK: Final = ".clock"


@dataclass
class Bucket:
    """A prefix in a bucket, with the same names as a folder on a disk."""

    store: ObjectStore = field(repr=False)
    where: str
    _pool: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(THREADS, "muster-bucket"), repr=False)

    def file_bytes(self, size: int) -> int:
        return FILE_BYTES

    def put(self, name: str, data: memoryview) -> int:
        """An object is there as a whole, or not at all."""
        data = data.cast("B")
        with self._errors():
            self.store.put(name, data, use_multipart=False)
        return checksum(data)

    def get(self, name: str) -> bytes:
        found = self._object(name)
        if found is None:
            raise CheckpointDamaged(f"{self.where}/{name} is not there.")
        return found[0]

    def read(self, name: str, at: int, into: memoryview) -> None:
        left = into.cast("B")
        while len(left):
            block = left[:BLOCK]
            found = self._range(name, at, at + len(block))
            if len(found) != len(block):
                raise CheckpointDamaged(f"{self.where}/{name} has no {len(block)} bytes from {at} on.")
            block[:] = found
            at += len(block)
            left = left[len(block) :]

    def copy(self, name: str, source: str) -> bool:
        """Has the store itself copy an object from this address. False if only another store has it."""
        root = "/".join(self.where.split("/", 3)[:3])  # of the bucket
        if not source.startswith(f"{root}/"):
            return False
        place = self.where.removeprefix(root).strip("/")
        with self._errors():
            whole = open_object_store(root)
            whole.copy(source.removeprefix(f"{root}/"), f"{place}/{name}" if place else name)
        return True

    def files(self, folder: str) -> dict[str, int]:
        with self._errors():
            found = [each for page in self.store.list(folder) for each in page]
        return {each["path"].removeprefix(f"{folder}/"): each["size"] for each in found}

    def committed(self) -> list[Committed]:
        found = [each for each in self._pool.map(self._committed, self._folders()) if each is not None]
        return sorted(found, key=lambda each: each.manifest.serial if each.manifest else -1, reverse=True)

    def begin(self, step: int) -> str:
        """Uses the final name at once: without a manifest it doesn't count as a checkpoint."""
        suffixes = [suffix for _, suffix in self._of_step(step)]
        return f"step-{step:09d}.{max(suffixes) + 1}" if suffixes else f"step-{step:09d}"

    def commit(self, folder: str, step: int, encoded: bytes) -> str:
        self.put(f"{folder}/{manifest.MANIFEST}", memoryview(encoded))
        for other, _ in self._of_step(step):
            if other != folder:
                self.delete(other)
        return folder

    def abandon(self, folder: str) -> None:
        self.delete(folder)

    def delete(self, folder: str) -> None:
        with suppress(CheckpointError):
            self.drop(f"{folder}/{manifest.MANIFEST}")
            list(self._pool.map(self.drop, [f"{folder}/{name}" for name in self.files(folder)]))

    def clean(self) -> None:
        for folder in self._folders():
            if manifest.MANIFEST not in self.files(folder):
                self.delete(folder)

    def hold(self) -> Hold:
        return LeaseHold(self, self.where)

    def room(self) -> str:
        """Empty: a bucket has no limit that can be asked for."""
        return ""

    def peek(self, name: str) -> Seen | None:
        found = self._object(name)
        if found is None:
            return None
        data, meta = found
        with self._errors():  # the server's own clock: the time of an object that is written now
            self.store.put(CLOCK, b"")
            now = self.store.head(CLOCK)["last_modified"]
        return Seen(data, _tag(meta), (now - meta["last_modified"]).total_seconds())

    def swap(self, name: str, data: bytes, tag: Tag | None) -> Tag | None:
        from obstore.exceptions import AlreadyExistsError, PreconditionError  # noqa: PLC0415 - an extra

        mode: PutMode = "create" if tag is None else {**tag}
        with self._errors(), suppress(AlreadyExistsError, PreconditionError):
            try:
                return _tag(self.store.put(name, data, mode=mode))
            except FileNotFoundError:
                if tag is None:  # no object was expected: there is no bucket
                    raise
        return None

    def drop(self, name: str) -> None:
        with self._errors(), suppress(FileNotFoundError):
            self.store.delete(name)

    def _object(self, name: str) -> tuple[bytes, ObjectMeta] | None:
        with self._errors(), suppress(FileNotFoundError):
            found = self.store.get(name)
            return bytes(found.bytes()), found.meta
        return None

    def _range(self, name: str, start: int, stop: int) -> memoryview:
        """Shorter than asked for, or empty, if the object is too short or not there."""
        from obstore.exceptions import GenericError  # noqa: PLC0415 - an extra

        with self._errors(), suppress(FileNotFoundError):
            try:
                return memoryview(self.store.get_range(name, start=start, end=stop))
            except GenericError:
                if start < self.store.head(name)["size"]:
                    raise
        return memoryview(b"")

    def _committed(self, folder: str) -> Committed | None:
        found = self._object(f"{folder}/{manifest.MANIFEST}")
        try:
            return Committed(folder, manifest.decode(found[0])) if found else None
        except ValueError as error:
            return Committed(folder, None, str(error))

    def _of_step(self, step: int) -> list[tuple[str, int]]:
        """The folders of a step, and the numbers behind their names."""
        found = [(folder, COMMITTED.fullmatch(folder)) for folder in self._folders()]
        return [(folder, int(match[2] or 0)) for folder, match in found if match and int(match[1]) == step]

    def _folders(self) -> list[str]:
        with self._errors():
            found = self.store.list_with_delimiter()["common_prefixes"]
        return [folder for folder in found if COMMITTED.fullmatch(folder)]

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            with object_store_errors(self.where):
                yield
        except ObjectStoreError as error:
            raise CheckpointError(f"{error} {error.hint}") from None


def open_bucket(where: str) -> Bucket:
    """Opens s3://bucket/prefix, gs://bucket/prefix or az://container/prefix."""
    try:
        return Bucket(open_object_store(where), where.rstrip("/"))
    except ObjectStoreError as error:
        raise CheckpointError(f"checkpoints: {error} {error.hint}") from None


def _tag(found: ObjectMeta | PutResult) -> Tag:
    """Without what the provider does not give: obstore refuses None."""
    made: Tag = {}
    if found["e_tag"] is not None:
        made["e_tag"] = found["e_tag"]
    if found["version"] is not None:
        made["version"] = found["version"]
    return made
