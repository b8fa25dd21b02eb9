"""Blobs: content by its SHA-256. Each blob is stored once, however many runs refer to it, and deleted when none does.

A blob without references is collected once it is older than the grace period. Before a caller refers to an existing
blob, it calls `missing`, which resets the blob's age, so that the blob isn't collected between the check and the use. A
blob that a project may not use counts as missing: see `holders`.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from itertools import groupby
from typing import BinaryIO, Final

from sqlalchemy import Connection, delete, exists, select, update
from sqlalchemy.dialects import postgresql, sqlite

from muster.core.errors import Invalid, NotFound
from muster.core.event import Event
from muster.store.base import Record
from muster.store.record_tables import artifacts, blob_owners, blobs, scans
from muster.track.blob_store import BLOCK, BlobStore, Stage
from muster.track.holders import Holder, held_by, owning
from muster.track.record_db import RecordDb

GRACE: Final = 86_400.0  # seconds that a blob without references is kept
_PROTECTED: Final = 3_600.0  # seconds for which `protect` protects a blob from `release`
_PAGE: Final = 500  # digests in one statement
_LOCKS: Final = 256  # locks, each shared by many digests
_DIGEST: Final = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class Collected:
    blobs: int
    bytes: int


class Blobs:
    """The record's blobs. `blob_store` has the bytes, the table `blobs` is the index, `in_use` finds references."""

    def __init__(self, db: RecordDb, blob_store: BlobStore, in_use: Callable[[Blobs], set[str]]) -> None:
        self.db, self.blob_store = db, blob_store
        self._in_use = in_use
        self._held = tuple(threading.Lock() for _ in range(_LOCKS))  # by digest: bytes and row change together
        self._collecting = threading.Lock()
        self.turn = 0  # incremented before every deletion
        self._protected: dict[str, float] = {}  # digest → when a caller was told that it exists (monotonic clock)

    def put(
        self,
        stream: BinaryIO | Iterable[bytes],
        expected_digest: str | None = None,
        expected_bytes: int | None = None,
        owner: str = "",
    ) -> tuple[str, int]:
        """Stores a stream durably. Returns digest and size. Raises Invalid if they are not the expected ones."""
        stage = self.stage()
        try:
            for data in iter(lambda: stream.read(BLOCK), b"") if hasattr(stream, "read") else stream:
                stage.write(data)
            return self.keep(stage, expected_digest, expected_bytes, owner)
        finally:
            stage.drop()

    def stage(self) -> Stage:
        """A stage for a blob that arrives in pieces: write them, then call `keep`, and `drop` in any case."""
        return self.blob_store.stage()

    def keep(
        self,
        stage: Stage,
        expected_digest: str | None = None,
        expected_bytes: int | None = None,
        owner: str = "",
        *,
        records: Iterable[Record] = (),
        events: Sequence[Event] = (),
    ) -> tuple[str, int]:
        """Stores a staged blob. From now on `owner` (see `holders`) may refer to it, because it sent the content.

        `records` and `events` are written in the same transaction, after the blob.
        """
        digest, size = stage.digest, stage.size
        if expected_bytes is not None and size != expected_bytes:
            raise Invalid(f"The content has {size} bytes; {expected_bytes} were expected.", "Send all of it again.")
        if expected_digest is not None and digest != expected_digest:
            raise Invalid(
                f"The content's SHA-256 is {digest}; {expected_digest} was expected.",
                "It was changed on its way, or while it was read: send it again.",
            )
        with self._held[_lock(digest)]:
            self.protect([digest])
            self.blob_store.keep(stage)
            self.db.write(self._rows({digest: size}), *self._owned([digest], owner), *records, events=events)
        return digest, size

    def put_many(self, items: Sequence[tuple[str, bytes]], owner: str = "") -> None:
        """Stores many small blobs, given with their digests, and makes them durable together."""
        for digest, data in items:
            if sha256(data).hexdigest() != digest:
                raise Invalid(f"The content given as {digest} is another.", "It was changed on its way: send it again.")
        self.protect([digest for digest, _ in items])
        absent = set(self.missing(digest for digest, _ in items))
        new = {digest: data for digest, data in items if digest in absent}
        for lock in set(map(_lock, new)):
            with self._held[lock]:
                pass  # waits until a deletion of such a row has deleted its bytes; `protect` prevents new ones
        stages = [self.stage() for _ in new]
        try:
            for stage, data in zip(stages, new.values(), strict=True):
                stage.write(data)
            self.blob_store.keep_many(stages)
        finally:
            for stage in stages:
                stage.drop()
        rows = [self._rows({digest: len(data) for digest, data in new.items()})] if new else []
        if records := [*rows, *self._owned((digest for digest, _ in items), owner)]:
            self.db.write(*records)

    def open(self, digest: str, start: int = 0, stop: int | None = None) -> Iterator[bytes]:
        """The bytes from `start` up to `stop`, in blocks."""
        size = self.size(digest)
        if size is None:
            raise unknown(digest)
        return self.blob_store.read(digest, start, size if stop is None else min(stop, size))

    def read(self, digest: str, most: int) -> bytes:
        """The whole of a small blob. Raises Invalid if it has more than `most` bytes."""
        size = self.size(digest)
        if size is not None and size > most:
            raise Invalid(f"The content {digest} has {size} bytes; at most {most} were expected.", "Name another.")
        return b"".join(self.open(digest))

    def size(self, digest: str) -> int | None:
        """The blob's size in bytes; None if it doesn't exist."""
        with self.db.reading() as connection:
            found = connection.scalar(select(blobs.c.bytes).where(blobs.c.digest == digest))
        return None if found is None else int(found)

    def has(self, digests: Iterable[str], holder: Holder | None = None) -> set[str]:
        with self.db.reading() as connection:
            return {digest for digest, _ in self._ages(connection, list(digests), holder)}

    def missing(self, digests: Iterable[str], holder: Holder | None = None) -> list[str]:
        """The digests that don't exist, in the given order. The others are kept for at least half the grace period.

        If a holder is given, a blob that it may not refer to is missing too.
        """
        wanted = list(dict.fromkeys(digests))
        there = self.has(wanted, holder)
        self.protect(there)  # only existing ones; the query below shows which of them were deleted before this
        with self.db.reading() as connection:
            ages = dict(self._ages(connection, list(there), holder))
        old = [digest for digest, created in ages.items() if created < self.db.now() - GRACE / 2]
        renewed = set(self._renew(old)) if old else set()
        return [digest for digest in wanted if digest not in ages or (digest in old and digest not in renewed)]

    def protect(self, digests: Collection[str]) -> None:
        """Protects blobs from `release` for a while."""
        now = time.monotonic()
        if len(self._protected) > 200_000:
            self._protected = {
                digest: then for digest, then in list(self._protected.items()) if then > now - _PROTECTED
            }
        self._protected.update(dict.fromkeys(digests, now))

    def release(self, digests: Iterable[str]) -> Collected:
        """Deletes those of the blobs that nothing refers to, without the grace period. For content that must be gone.

        Blobs whose existence was just reported to a caller stay; the daily collection deletes them.
        """
        wanted = set(digests)
        with self._collecting:
            return self._delete(wanted, self.db.now(), spare=self._is_protected) if wanted else Collected(0, 0)

    def collect(self, grace: float = GRACE, dry_run: bool = False) -> Collected:
        """Deletes blobs without references that are older than the grace period, and remains of crashes."""
        with self._collecting:
            before = self.db.now() - grace
            with self.db.reading() as connection:
                rows = select(blobs.c.digest, blobs.c.bytes).where(blobs.c.created_at <= before)
                old = dict(connection.execute(rows).all())
            if dry_run:
                loose = old.keys() - self._in_use(self)
                return Collected(len(loose), sum(old[digest] for digest in loose))
            found = self._delete(old, before, spare=lambda digest: False)
            self._sweep(grace)
            return found

    def _delete(self, digests: Iterable[str], before: float, spare: Callable[[str], bool]) -> Collected:
        used = self._in_use(self)
        self.turn += 1
        count = size = 0
        for lock, group in groupby(sorted((_lock(digest), digest) for digest in digests if digest not in used), _first):
            for page in pages([digest for _, digest in group], _PAGE):
                with self._held[lock]:
                    gone: list[tuple[str, int]] = []
                    self.db.write(_forget([digest for digest in page if not spare(digest)], before, gone))
                    for digest, _ in gone:
                        self.blob_store.delete(digest)
                count, size = count + len(gone), size + sum(each for _, each in gone)
        return Collected(count, size)

    def _sweep(self, grace: float) -> None:
        """Deletes what a crash left between store and table: abandoned stages, and stored blobs without a row."""
        self.blob_store.tidy(max(grace, GRACE))
        for page in pages([digest for digest, age in self.blob_store.digests() if age > grace], _PAGE):
            for digest in set(page) - self.has(page):
                with self._held[_lock(digest)]:
                    if not self.has([digest]) and not self._is_protected(digest):  # else it is being stored right now
                        self.blob_store.delete(digest)

    def _is_protected(self, digest: str) -> bool:
        then = self._protected.get(digest)
        return then is not None and time.monotonic() - then < _PROTECTED

    def _renew(self, digests: Sequence[str]) -> list[str]:
        found: list[str] = []

        def record(connection: Connection) -> None:
            for page in pages(digests, _PAGE):
                young = update(blobs).where(blobs.c.digest.in_(page)).values(created_at=self.db.now())
                found.extend(connection.scalars(young.returning(blobs.c.digest)))

        self.db.write(record)
        return found

    def _rows(self, sizes: Mapping[str, int]) -> Record:
        make = sqlite.insert if self.db.database.kind == "sqlite" else postgresql.insert
        row, now = make(blobs), self.db.now()
        young = row.on_conflict_do_update(index_elements=["digest"], set_={"created_at": row.excluded.created_at})
        rows = [{"digest": digest, "bytes": size, "created_at": now} for digest, size in sizes.items()]

        def record(connection: Connection) -> None:
            connection.execute(young, rows)

        return record

    def _owned(self, digests: Iterable[str], owner: str) -> list[Record]:
        found = list(dict.fromkeys(digests))
        return [owning(found, owner, self.db.now())] if owner and found else []

    def _ages(
        self, connection: Connection, digests: Sequence[str], holder: Holder | None = None
    ) -> Iterator[tuple[str, float]]:
        for page in pages(digests, _PAGE):
            found = select(blobs.c.digest, blobs.c.created_at).where(blobs.c.digest.in_(page))
            yield from connection.execute(found if holder is None else found.where(held_by(holder)))


def check_digest(text: str) -> str:
    if not _DIGEST.fullmatch(text):
        raise Invalid(f"{text[:80]!r} is no digest.", "Give the SHA-256 in 64 small hexadecimal characters.")
    return text


def unknown(digest: str) -> NotFound:
    return NotFound(f"There is no content {digest}.", "Upload it first: PUT /v1/blobs/DIGEST.")


def pages(items: Sequence[str], size: int) -> Iterator[list[str]]:
    return (list(items[at : at + size]) for at in range(0, len(items), size))


def _lock(digest: str) -> int:
    return int(digest[:2], 16)


def _first(pair: tuple[int, str]) -> int:
    return pair[0]


def _forget(digests: Sequence[str], before: float, gone: list[tuple[str, int]]) -> Record:
    """Deletes the rows, unless references were added since `in_use` was computed."""
    named = exists(select(artifacts.c.run).where(artifacts.c.digest == blobs.c.digest))
    loose = delete(blobs).where(blobs.c.digest.in_(digests), blobs.c.created_at <= before, ~named)

    def record(connection: Connection) -> None:
        gone.extend(connection.execute(loose.returning(blobs.c.digest, blobs.c.bytes)))
        connection.execute(delete(scans).where(scans.c.digest.in_([digest for digest, _ in gone])))
        connection.execute(delete(blob_owners).where(blob_owners.c.digest.in_([digest for digest, _ in gone])))

    return record
