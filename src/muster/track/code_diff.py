"""Compares two code snapshots: added, removed and changed files, and optionally the changed lines."""

from __future__ import annotations

import difflib
from typing import Final

from muster.api.compare import ChangedFiles
from muster.core.errors import MusterError
from muster.track.blobs import Blobs
from muster.track.snapshots import read_manifest

LARGEST_FILE: Final = 200_000  # bytes of the largest file whose lines are compared
MOST_LINES: Final = 4000  # of all files together
MOST_FILES: Final = 1000  # per list


def changed_files(blobs: Blobs, base: str, other: str, lines: bool) -> ChangedFiles:
    """{"added", "removed", "changed": paths, "diff": text or None, "problem": error text}."""
    try:
        before, after = read_manifest(blobs, base).files, read_manifest(blobs, other).files
    except MusterError as error:
        return {"added": [], "removed": [], "changed": [], "diff": None, "problem": str(error)}
    changed = sorted(path for path in before.keys() & after.keys() if before[path] != after[path])
    added, removed = sorted(after.keys() - before.keys()), sorted(before.keys() - after.keys())
    diff = None
    if lines:
        texts = [(path, before.get(path), after.get(path)) for path in sorted([*changed, *added, *removed])]
        diff = _diff(blobs, texts)
    return {
        "added": added[:MOST_FILES],
        "removed": removed[:MOST_FILES],
        "changed": changed[:MOST_FILES],
        "counts": {"added": len(added), "removed": len(removed), "changed": len(changed)},
        "diff": diff,
        "problem": "",
    }


_Entry = tuple[str, int, int] | None  # digest, bytes, mode


def _diff(blobs: Blobs, texts: list[tuple[str, _Entry, _Entry]]) -> str:
    found: list[str] = []
    for path, before, after in texts:
        if len(found) > MOST_LINES:
            found.append(f"... and more; this is cut after {MOST_LINES:,} lines\n")
            break
        old, new = _lines(blobs, before), _lines(blobs, after)
        if old is None or new is None:
            found.append(f"--- {path}: large or no text, not shown\n")
            continue
        names = (f"a/{path}" if before else "/dev/null", f"b/{path}" if after else "/dev/null")
        found += difflib.unified_diff(old, new, *names)
    return "".join(line if line.endswith("\n") else f"{line}\n" for line in found[: MOST_LINES + 1])


def _lines(blobs: Blobs, entry: _Entry) -> list[str] | None:
    """The lines of a file; None if it is large, not text, or missing."""
    if entry is None:
        return []
    digest, size, _ = entry
    if size > LARGEST_FILE:
        return None
    try:
        return blobs.read(digest, LARGEST_FILE).decode().splitlines(keepends=True)
    except (UnicodeDecodeError, MusterError):
        return None
