"""Holds the files of a folder against a signed statement, without a server."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from muster.core.envelope import ENVELOPE_BYTES, open_envelope
from muster.core.errors import Invalid, NotFound
from muster.track.provenance.statement import FILE_NAME, PAYLOAD_TYPE, Statement, read_statement

_BLOCK: Final = 4 << 20  # bytes


@dataclass(frozen=True, slots=True)
class Verdict:
    """What was found. Paths are relative to the folder."""

    statement: Statement
    key: str  # that signed it
    good: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    extra: tuple[str, ...] = ()  # files, links and devices that the statement does not name

    @property
    def ok(self) -> bool:
        return not (self.changed or self.missing or self.extra)


def open_statement(data: bytes, keys: Mapping[str, bytes]) -> tuple[Statement, str]:
    """The statement of an envelope, and the key that signed it. Raises Invalid."""
    opened = open_envelope(data, PAYLOAD_TYPE, keys)
    return read_statement(opened.payload), opened.key


def read_envelope(file: Path) -> bytes:
    """The bytes of a statement's file. Raises NotFound or Invalid."""
    try:
        with file.open("rb") as opened:
            data = opened.read(ENVELOPE_BYTES + 1)
    except OSError as error:
        hint = f"`muster models download MODEL/VERSION` puts {FILE_NAME} beside the files; name another by --statement."
        raise NotFound(f"There is no statement at {file}: {error.strerror}.", hint) from None
    if len(data) > ENVELOPE_BYTES:
        raise Invalid(f"{file} has more than {ENVELOPE_BYTES:,} bytes: it is no statement.", "Name another.")
    return data


def verify_folder(folder: Path, data: bytes, keys: Mapping[str, bytes], statement_file: Path | None = None) -> Verdict:
    """Checks the signature, then the digest of every file. `statement_file` itself is not counted as extra."""
    statement, key = open_statement(data, keys)
    wanted = {one.name: one.sha256 for one in statement.subjects}
    own = statement_file or folder / FILE_NAME
    found = {name: regular for name, path, regular in _entries(folder) if not _same(path, own)}
    good, changed = list[str](), list[str]()
    for name in sorted(name for name, regular in found.items() if name in wanted and regular):
        (good if _sha256(folder / name) == wanted[name] else changed).append(name)
    missing = sorted(name for name in wanted if not found.get(name))
    extra = sorted(name for name, regular in found.items() if name not in wanted or not regular)
    return Verdict(statement, key, tuple(good), tuple(changed), tuple(missing), tuple(extra))


def verify_digests(data: bytes, keys: Mapping[str, bytes], found: Mapping[str, str], ref: str) -> Verdict:
    """Checks the signature, and digests that are known already: name → SHA-256. `ref`: what it must be of."""
    statement, key = open_statement(data, keys)
    if statement.about != ref:
        raise Invalid(
            f"The statement is of {statement.about[:200]!r}, and {ref!r} was asked for.",
            "It was swapped: don't use it.",
        )
    wanted = {one.name: one.sha256 for one in statement.subjects}
    good = sorted(name for name in wanted if found.get(name) == wanted[name])
    changed = sorted(name for name in wanted if name in found and found[name] != wanted[name])
    missing, extra = sorted(wanted.keys() - found.keys()), sorted(found.keys() - wanted.keys())
    return Verdict(statement, key, tuple(good), tuple(changed), tuple(missing), tuple(extra))


def _entries(folder: Path) -> Iterator[tuple[str, Path, bool]]:
    """Everything below the folder that is no folder: its path, and whether it is a regular file. Links stay links."""
    if not folder.is_dir():
        raise NotFound(f"There is no folder {folder}.", "Name the folder with the downloaded files.")

    def failed(error: OSError) -> None:
        raise Invalid(f"{error.filename} can't be read: {error.strerror}.", "Make it readable.")

    for place, folders, files in os.walk(folder, onerror=failed):
        for name in (*files, *(one for one in folders if (Path(place) / one).is_symlink())):
            path = Path(place) / name
            yield path.relative_to(folder).as_posix(), path, stat.S_ISREG(path.lstat().st_mode)


def _sha256(path: Path) -> str:
    found = hashlib.sha256()
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        with os.fdopen(descriptor, "rb", buffering=0) as file:
            while block := file.read(_BLOCK):
                found.update(block)
    except OSError as error:
        raise Invalid(f"{path} can't be read: {error.strerror}.", "Make it readable.") from None
    return found.hexdigest()


def _same(path: Path, other: Path) -> bool:
    return os.path.abspath(path) == os.path.abspath(other)  # noqa: PTH100  (`resolve` would follow links)
