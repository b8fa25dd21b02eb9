"""A record over a real store with a key for signing, and one server for the tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

from live import LiveServer, live_server
from muster.control.secrets import Keyring
from muster.control.signing import Signer, first_key, public_keys
from muster.control.statement_writer import StatementWriter
from muster.core.event import SYSTEM
from muster.track.provenance.rows import statement_of
from muster.track.provenance.statement import Statement
from muster.track.provenance.verify import open_statement
from record_kit import Record, open_record

KEYRING = Keyring(b"k" * 32)


@dataclass
class Signing:
    record: Record
    signer: Signer
    writer: StatementWriter

    def put(self, run: str, path: str, content: bytes = b"x", kind: str = "model", **given: Any) -> str:
        digest, _ = self.record.track.blobs.put(BytesIO(content))
        self.record.track.artifacts.put(run, path, digest, kind=kind, **given)
        return sha256(content).hexdigest()

    def ship(self, run: str, path: str, content: bytes = b"x", kind: str = "model", attempt: int = 1) -> str:
        """As the launcher of an attempt does."""
        digest, size = self.record.track.blobs.put(BytesIO(content), owner="project:default")
        doc = {"type": "artifact", "path": path, "digest": digest, "bytes": size, "kind": kind}
        self.record.report(run, doc, attempt=attempt)
        return digest

    def write(self) -> None:
        self.record.later(60)
        self.writer.write_due()

    def statement(self, ref: str) -> Statement:
        return self.opened(ref)[0]

    def opened(self, ref: str) -> tuple[Statement, str]:
        found = statement_of(self.record.track.db, ref)
        assert found is not None, ref
        data = self.record.track.blobs.read(found.digest, 1 << 20)
        return open_statement(data, public_keys(self.record.store.state()))


def signing(record: Record) -> Signing:
    record.commit.submit(first_key(KEYRING, SYSTEM, 1.0)).result()
    signer = Signer(record.store, KEYRING)
    return Signing(record, signer, StatementWriter(record.track, signer, lambda: True))


@pytest.fixture(params=["sqlite", "postgresql"])
def signed(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Signing]:
    url = f"sqlite:///{tmp_path}/m.db" if request.param == "sqlite" else request.getfixturevalue("tables_url")
    with open_record(url, tmp_path / "home") as found:
        yield signing(found)


@pytest.fixture
def light(tmp_path: Path) -> Iterator[Signing]:
    with open_record(f"sqlite:///{tmp_path}/m.db", tmp_path / "home") as found:
        yield signing(found)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    with live_server(tmp_path_factory.mktemp("home")) as made:
        yield made
