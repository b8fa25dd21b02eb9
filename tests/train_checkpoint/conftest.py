"""The S3 server that the tests of checkpoints share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from muster import wire
from s3_kit import S3Server, s3_server


@pytest.fixture(scope="session")
def s3() -> Iterator[S3Server]:
    """One server for the whole session, started when a test first asks for it."""
    with s3_server() as server:
        yield server


@pytest.fixture
def bucket(s3, monkeypatch) -> str:
    """An empty bucket, in an environment with its server's address and keys."""
    for name, value in s3.env.items():
        monkeypatch.setenv(name, value)
    return s3.bucket()


@pytest.fixture(autouse=True)
def alone(monkeypatch):
    for name in (wire.RANK, wire.WORLD_SIZE, wire.RANK_DIR, wire.CHECKPOINT_DIR, wire.CHECKPOINT_KEEP, wire.ATTEMPT):
        monkeypatch.delenv(name, raising=False)
