"""The verdicts of scans, by the digest of the content and how it was read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Literal

from sqlalchemy import Connection, select
from sqlalchemy.dialects import postgresql, sqlite

from muster.scan.findings import Finding
from muster.store.base import Record
from muster.store.codec import dumps, loads
from muster.store.record_tables import scans
from muster.track.record_db import RecordDb

# Kinds of artifacts that are scanned as such; code is scanned when it is submitted.
SCANNED: Final = ("file", "media", "checkpoint", "model")
Reading = Literal["artifact", "text", "notebook"]
Findings = tuple[Finding, ...]
_PAGE: Final = 500


def known(db: RecordDb, digests: Iterable[str], reading: Reading, version: int) -> dict[str, Findings]:
    """The verdicts of this version of the scanner, or a later one."""
    wanted, found = list(dict.fromkeys(digests)), dict[str, Findings]()
    with db.reading() as connection:
        for start in range(0, len(wanted), _PAGE):
            some = scans.c.digest.in_(wanted[start : start + _PAGE])
            rows = select(scans.c.digest, scans.c.findings).where(
                some, scans.c.reading == reading, scans.c.version >= version
            )
            found.update({digest: findings_of(text) for digest, text in connection.execute(rows)})
    return found


def findings_of(text: str) -> Findings:
    return tuple(map(Finding.of, loads(text))) if text != "[]" else ()


def keeping(db: RecordDb, verdicts: Mapping[str, Sequence[Finding]], reading: Reading, version: int) -> Record:
    """Writes the verdicts; a later one of the same content takes the place of an earlier one."""
    make = sqlite.insert if db.database.kind == "sqlite" else postgresql.insert
    row = make(scans)
    upsert = row.on_conflict_do_update(
        index_elements=["digest", "reading"],
        set_={name: row.excluded[name] for name in ("version", "findings", "time")},
    )
    now = db.now()
    rows = [
        {"digest": digest, "reading": reading, "version": version, "time": now,
         "findings": dumps([one.to_dict() for one in found])}
        for digest, found in verdicts.items()
    ]  # fmt: skip

    def record(connection: Connection) -> None:
        connection.execute(upsert, rows)

    return record
