"""Scans the code of a submission before anything of it is sent; content that was scanned before is not read again."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from muster.scan.findings import Finding

_MOST: Final = 20_000  # digests that are remembered


def find_leaks(
    content: Mapping[str, str | bytes], paths: Mapping[str, str], dropped: Mapping[str, int], diff: str, cache: Path
) -> list[Finding]:
    """What is in the files (`paths`: path → digest, `content`: digest → file or bytes) and in the changes (`diff`).

    `dropped` are files that are too large to be sent, with their sizes.
    """
    known = _Known(cache)
    found: list[Finding] = []
    for path, digest in {**paths, **({_CHANGES: diff} if diff else {})}.items():
        found += known.of(path, digest, content.get(digest))
    known.save()
    if dropped:
        from muster.scan.findings import Finding  # noqa: PLC0415  (only where there is something to tell)

        hint = "List it in .musterignore; see `data`."
        found += [Finding("large_file", path, "a large file", hint, size) for path, size in dropped.items()]
    return found


def only_removed(found: list[Finding], diff: bytes) -> list[Finding]:
    """The secrets of the changes, if all stand in lines that the changes remove; else none."""
    changes = [one for one in found if one.sort == "secret" and one.place.startswith(f"{_CHANGES}:")]
    lines = diff.split(b"\n")
    gone = all(lines[int(one.place.rpartition(":")[2]) - 1].startswith(b"-") for one in changes)
    return changes if gone else []


class _Known:
    """The verdicts so far: `[]` for most. The scanner, which takes a while to load, is loaded for new content alone."""

    def __init__(self, cache: Path) -> None:
        self._file = cache / "scans-1.json"
        self._known: dict[str, list[dict[str, Any]]] = _load(self._file)
        self._changed = False

    def of(self, path: str, digest: str, content: str | bytes | None) -> list[Finding]:
        key = f"{digest}{'-notebook' if path.lower().endswith('.ipynb') else ''}"
        kept = self._known.get(key)
        if kept == [] or (kept is None and content is None):
            return []
        from muster.scan.files import look_at_text, reading_of  # noqa: PLC0415  (a third of a second)
        from muster.scan.findings import Finding  # noqa: PLC0415

        reading = reading_of(path) if path != _CHANGES else "text"
        if reading is None:
            return []
        if kept is None:
            assert content is not None
            data = content if isinstance(content, bytes) else Path(content).read_bytes()
            kept = [dict(one.to_dict()) for one in look_at_text(data, reading)]
            self._known[key], self._changed = kept, True
        return [Finding.of(one).at(path) for one in kept]

    def save(self) -> None:
        """If the cache can't be written, the next scan is only slower."""
        if not self._changed:
            return
        temporary = self._file.with_suffix(f".{os.getpid()}")
        try:
            self._file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            temporary.write_text(json.dumps(dict(list(self._known.items())[-_MOST:])))
            temporary.replace(self._file)
        except OSError:
            temporary.unlink(missing_ok=True)


def _load(path: Path) -> dict[str, list[dict[str, Any]]]:
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


_CHANGES: Final = "the changes against the commit"
