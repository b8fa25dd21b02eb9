"""Verifies a backup: reads every byte of it again and reports what is wrong."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

from muster.core.errors import Invalid, NotFound
from muster.store.backup import MANIFEST, VERSION, Copied, Progress, digest_of


def verify(folder: Path, progress: Progress) -> Copied:
    """Reads every byte of a copy again; `problems` of the result lists what is wrong."""
    manifest = _read_manifest(folder)
    copied = Copied(folder, manifest["files"])
    for name, said in manifest["files"].items():
        copied.problems += _checked(folder / name, said["bytes"], said["sha256"], progress)
        if name.endswith(".db") and not copied.problems:
            copied.problems += _integrity(folder / name)
    digests = folder / "blobs.txt"
    for line in digests.read_text().splitlines() if digests.exists() else []:
        digest, size = line.split()
        copied.problems += _checked(folder / "blobs" / digest[:2] / digest, int(size), digest, progress)
        copied.blobs, copied.blob_bytes = copied.blobs + 1, copied.blob_bytes + int(size)
    return copied


def _read_manifest(folder: Path) -> dict[str, Any]:
    try:
        manifest: dict[str, Any] = json.loads((folder / MANIFEST).read_text())
        if manifest["version"] != VERSION:
            raise Invalid(
                f"{folder} has version {manifest['version']}; this Muster knows {VERSION}.", "Use a newer one."
            )
        return manifest
    except FileNotFoundError:
        hint = "It is no backup, or one that was cut off: make another."
        raise NotFound(f"There is no {MANIFEST} in {folder}.", hint) from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise Invalid(f"{folder / MANIFEST} can't be read: {error!r}.", "Make another backup.") from error


def _checked(path: Path, size: int, digest: str, progress: Progress) -> list[str]:
    try:
        there = path.stat().st_size
        good = there == size and digest_of(path) == digest
    except OSError as error:
        return [f"{path} can't be read: {error.strerror}."]
    progress(path.name[:12], size, size)
    return [] if good else [f"{path} is not what was written: {there} bytes, {size} expected, or other content."]


def _integrity(path: Path) -> list[str]:
    with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro&immutable=1", uri=True)) as copy:
        (said,) = copy.execute("PRAGMA integrity_check(1)").fetchone()
    return [] if said == "ok" else [f"{path} is damaged: {said}."]
