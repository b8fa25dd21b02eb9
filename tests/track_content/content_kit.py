"""A record over a real database, with nothing else running: for tests of content."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from muster.store.commit import GroupCommit
from muster.store.registry import open_store
from muster.track.artifacts import Artifacts
from muster.track.blob_refs import in_use
from muster.track.blob_store import BlobStore, LocalBlobs
from muster.track.blobs import Blobs
from muster.track.record_db import RecordDb
from muster.track.snapshots import Snapshots

DAY = 86_400.0
both = pytest.mark.parametrize("kept", ["sqlite", "postgresql"], indirect=True)


@dataclass
class Content:
    """`now` is the only clock that the record sees."""

    db: RecordDb
    blobs: Blobs
    artifacts: Artifacts
    snapshots: Snapshots
    now: float = 1_000_000.0

    def add(self, text: str | bytes) -> str:
        return self.blobs.put([text.encode() if isinstance(text, str) else text])[0]

    def pass_days(self, days: float) -> None:
        self.now += days * DAY


@contextmanager
def content(url: str, blob_store: BlobStore) -> Iterator[Content]:
    store = open_store(url)
    store.open()
    commit = GroupCommit(store, on_commit=lambda events: None)
    commit.start()
    try:
        assert store.database is not None
        db = RecordDb(store.database, commit, lambda: made.now)
        blobs = Blobs(db, blob_store, in_use)
        artifacts = Artifacts(db, blobs)
        made = Content(db, blobs, artifacts, Snapshots(artifacts))
        yield made
    finally:
        commit.close()
        store.close()


def local(folder: Path) -> LocalBlobs:
    return LocalBlobs(folder / "blobs")


def sha(data: str | bytes) -> str:
    return hashlib.sha256(data.encode() if isinstance(data, str) else data).hexdigest()
