"""Checks paths of artifacts and snapshot files: they must be relative and must not lead elsewhere."""

from __future__ import annotations

import re
from typing import Final

from muster.core.errors import Invalid

PATH_BYTES: Final = 1000
PART_BYTES: Final = 255
_CONTROL: Final = re.compile(r"[\\\x00-\x1f\x7f]")
_HALF: Final = re.compile("[\ud800-\udfff]")  # of a surrogate pair


def check_path(path: str) -> str:
    """Raises Invalid for a path that could lead outside the run's folder, or can't be a file name."""
    wrong = _wrong(path)
    if wrong:
        hint = "Give a relative path such as `plots/loss.png`."
        raise Invalid(f"{path[:200]!r} is no path for an artifact: {wrong}.", hint)
    return path


def _wrong(path: str) -> str:
    parts = path.split("/")
    if not path:
        return "it is empty"
    if path.startswith(("/", "~")) or (len(path) > 1 and path[1] == ":"):
        return "it must be relative"
    if _CONTROL.search(path):
        return "it holds a backslash or a control character"
    if _HALF.search(path):
        return "it is no valid Unicode"
    if "" in parts or "." in parts or ".." in parts:
        return "it holds an empty part, `.` or `..`"
    sizes = [len(part.encode()) for part in parts]
    if max(sizes) > PART_BYTES:
        return f"a part of it has {max(sizes)} bytes, and at most {PART_BYTES} are possible"
    if sum(sizes) + len(sizes) - 1 > PATH_BYTES:
        return f"it has {sum(sizes) + len(sizes) - 1} bytes, and at most {PATH_BYTES} are possible"
    return ""
