"""The object stores that the tests of checkpoints share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from azure_kit import AzureServer, azure_server
from gcs_kit import GcsServer, gcs_server
from muster import wire
from s3_kit import S3Server, s3_server


@pytest.fixture(scope="session")
def s3() -> Iterator[S3Server]:
    """One server for the whole session, started when a test first asks for it."""
    with s3_server() as server:
        yield server


@pytest.fixture(scope="session")
def azure() -> Iterator[AzureServer]:
    with azure_server() as server:
        yield server


@pytest.fixture(scope="session")
def gcs() -> Iterator[GcsServer]:
    with gcs_server() as server:
        yield server


@pytest.fixture(params=["s3", "gcs", "azure"])
def server(request) -> S3Server | GcsServer | AzureServer:
    return request.getfixturevalue(request.param)


@pytest.fixture
def bucket(server, monkeypatch) -> str:
    """The address of an empty bucket, in an environment with its server's address and keys."""
    for name, value in server.env.items():
        monkeypatch.setenv(name, value)
    return server.address()


@pytest.fixture(autouse=True)
def alone(monkeypatch):
    for name in (wire.RANK, wire.WORLD_SIZE, wire.RANK_DIR, wire.CHECKPOINT_DIR, wire.CHECKPOINT_KEEP, wire.ATTEMPT):
        monkeypatch.delenv(name, raising=False)
