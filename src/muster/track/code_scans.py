"""Scans the code that jobs are submitted with, each content once: a client may not have, or may be an attacker's."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from muster.scan.files import TEXT_BYTES, TOO_LONG, VERSION, look_at_text, reading_of
from muster.scan.files import Reading as TextReading
from muster.scan.findings import MOST, Finding
from muster.track.blobs import Blobs
from muster.track.record_db import RecordDb
from muster.track.scan_rows import Findings, keeping, known
from muster.track.snapshots import Code, Snapshots

LARGE: Final = 1_000_000  # bytes: smaller files are large by no policy
_READINGS: Final[tuple[TextReading, ...]] = ("text", "notebook")
_TOGETHER: Final = 500  # verdicts written at once
_REMEMBERED: Final = 100  # snapshots


class CodeScans:
    def __init__(self, db: RecordDb, blobs: Blobs, snapshots: Snapshots) -> None:
        self._db, self._blobs, self._snapshots = db, blobs, snapshots
        self._seen: dict[tuple[str, str], Findings] = {}  # (tree, diff) → what was found; content never changes

    def look(self, code: Code) -> Findings:
        """What is in the files and the changes of this code, and which files are large."""
        key = (code.tree, code.diff)
        found = self._seen.get(key)
        if found is None:
            found = tuple(self._look(code))[:MOST]
            if len(self._seen) >= _REMEMBERED:
                self._seen.clear()
            self._seen[key] = found
        return found

    def _look(self, code: Code) -> Iterator[Finding]:
        files = self._snapshots.manifest(code.tree).files if code.tree else {}
        for reading in _READINGS:
            sizes = {digest: size for path, (digest, size, _) in files.items() if reading_of(path) == reading}
            verdicts = self._verdicts(sizes, reading)
            for path, (digest, _, _) in files.items():
                if reading_of(path) == reading:
                    yield from (one.at(path) for one in verdicts.get(digest, ()))
        for path, (_, size, _) in files.items():
            if size > LARGE:
                yield Finding("large_file", path, "a large file", "List it in .musterignore; see `data`.", size)
        if code.diff:
            whole = self._blobs.size(code.diff)
            found = self._verdicts({code.diff: whole}, "text") if whole is not None else {}
            yield from (one.at("the changes against the commit") for one in found.get(code.diff, ()))

    def _verdicts(self, sizes: dict[str, int], reading: TextReading) -> dict[str, Findings]:
        verdicts = known(self._db, sizes, reading, VERSION)
        new = dict[str, Findings]()
        for digest, size in sizes.items():
            if digest not in verdicts:
                new[digest] = (TOO_LONG,) if size > TEXT_BYTES else self._text(digest, reading)
            if len(new) >= _TOGETHER:
                self._keep(new, reading, verdicts)
        self._keep(new, reading, verdicts)
        return verdicts

    def _keep(self, new: dict[str, Findings], reading: TextReading, verdicts: dict[str, Findings]) -> None:
        if new:
            self._db.write(keeping(self._db, new, reading, VERSION))
            verdicts.update(new)
            new.clear()

    def _text(self, digest: str, reading: TextReading) -> Findings:
        return tuple(look_at_text(self._blobs.read(digest, TEXT_BYTES), reading))
