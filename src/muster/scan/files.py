"""One file of a working directory: its secrets, and a notebook's outputs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Any, Final, Literal

from muster.scan.findings import MOST, Finding
from muster.scan.secrets import OutOfTime, secrets_in

TEXT_BYTES: Final = 2_000_000  # larger files are not searched
VERSION: Final = 1  # of what is looked for: raised, files count as new
Reading = Literal["text", "notebook"]
_BINARY: Final = 8192  # bytes from the beginning in which a zero byte means that it is no text
_NOTEBOOK: Final = ".ipynb"
_STRIP: Final = "Clear them before you submit: `jupyter nbconvert --clear-output --inplace {path}`."
_SEE: Final = "See that no secret is in it."
TOO_LONG: Final = Finding("not_scanned", "", f"not looked at: it has more than {TEXT_BYTES / 1e6:g} MB of text", _SEE)
# The suffixes of files that are never source code, and are often large: not worth reading.
_DATA: Final = frozenset({
    ".png", ".jpg", ".jpeg", ".gif", ".webp", ".mp4", ".wav", ".mp3", ".flac", ".npy", ".npz", ".parquet", ".arrow",
    ".safetensors", ".gz", ".zip", ".tar", ".bz2", ".xz", ".zst", ".so", ".whl",
})  # fmt: skip


def reading_of(path: str) -> Reading | None:
    """How a file of that name is read; None if it is data, and not worth reading."""
    suffix = PurePosixPath(path).suffix.lower()
    return None if suffix in _DATA else "notebook" if suffix == _NOTEBOOK else "text"


def look_at_file(path: str, data: bytes) -> list[Finding]:
    """What is in a file, named by its path in the folder."""
    reading = reading_of(path)
    return [] if reading is None else [one.at(path) for one in look_at_text(data, reading)]


def look_at_text(data: bytes, reading: Reading) -> list[Finding]:
    """What is in a file, without its path: see `Finding.at`. One that can't be searched is a finding that says so."""
    if b"\0" in data[:_BINARY]:
        return []
    if len(data) > TEXT_BYTES:
        return [TOO_LONG]
    text = data.decode("utf-8", "replace")
    try:
        return _look_at_notebook(text) if reading == "notebook" else secrets_in(text, "")
    except OutOfTime:
        return [Finding("not_scanned", "", "not looked at: it takes too long to search", _SEE)]


def _look_at_notebook(text: str) -> list[Finding]:
    """Cells and their outputs by number; a notebook that can't be read is searched as text."""
    try:
        cells = json.loads(text)["cells"]
        parts = [(n, cell, _joined(cell.get("source"))) for n, cell in enumerate(cells, 1)]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return secrets_in(text, "")
    found, shown = list[Finding](), list[int]()
    for number, cell, source in parts:
        place = f" (cell {number})"
        found += secrets_in(source, place)
        if outputs := cell.get("outputs"):
            shown.append(number)
            for output in _texts(outputs):
                found += secrets_in(output, f"{place}, output", numbered=False)
    if shown:
        cells_ = "cell" if len(shown) == 1 else "cells"
        some = ", ".join(map(str, shown[:10])) + (" and more" if len(shown) > 10 else "")
        found.append(Finding("notebook", "", f"outputs in {cells_} {some}", _STRIP))
    return found[:MOST]


def _texts(raw: Any, depth: int = 0) -> Iterator[str]:
    """All text of a notebook's outputs, without pictures."""
    if depth > 20:
        return
    if isinstance(raw, str):
        yield raw
    elif isinstance(raw, dict):
        for key, value in raw.items():
            if not str(key).startswith(("image/", "audio/", "video/")):
                yield from [_joined(value)] if _is_lines(value) else _texts(value, depth + 1)
    elif isinstance(raw, list):
        for value in raw:
            yield from _texts(value, depth + 1)


def _is_lines(raw: Any) -> bool:
    return isinstance(raw, list) and bool(raw) and all(isinstance(one, str) for one in raw)


def _joined(raw: Any) -> str:
    return raw if isinstance(raw, str) else "".join(map(str, raw)) if isinstance(raw, list) else ""
