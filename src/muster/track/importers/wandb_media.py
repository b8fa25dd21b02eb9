"""W&B's media: converts histograms, images, tables and files of the history, and reads the files."""

from __future__ import annotations

import json
import math
import mimetypes
from pathlib import Path
from typing import Any, Final

from muster.track.importers.base import ImportedMedium

_KINDS: Final = {
    "image-file": "image",
    "audio-file": "audio",
    "video-file": "video",
    "html-file": "html",
    "table-file": "table",
    "plotly-file": "file",
}
_TABLE_BYTES: Final = 200_000  # bytes; a larger one is imported as a file


def shown(folder: Path, name: str, value: Any, step: int, time: float) -> list[ImportedMedium] | str:
    """The media of a history value, or a text that says why it was left out."""
    if isinstance(value, str):
        return [ImportedMedium(name, "text", step, time, {"text": value.replace("\0", "�")})]
    if not isinstance(value, dict):
        return f"values of {name!r} that are lists"
    kind = str(value.get("_type", ""))
    if kind == "histogram":
        data = _histogram(value)
        return (
            [ImportedMedium(name, "histogram", step, time, data)] if data else f"histograms of {name!r} without buckets"
        )
    if kind == "images/separated":
        paths = [str(path) for path in value.get("filenames") or ()]
        made = [_file(folder, f"{name}/{at}", "image", path, step, time) for at, path in enumerate(paths)]
        return [each for each in made if each is not None] or f"images of {name!r} whose files are not there"
    if isinstance(value.get("path"), str):
        found = _file(folder, name, _KINDS.get(kind, "file"), value["path"], step, time)
        return [found] if found is not None else f"files of {name!r} that are not there"
    return f"values of {name!r} of the type {kind!r}"


def _file(folder: Path, name: str, kind: str, path: str, step: int, time: float) -> ImportedMedium | None:
    file = folder / path
    if ".." in Path(path).parts or Path(path).is_absolute() or not file.is_file():
        return None
    content = file.read_bytes()
    about = {"path": path}
    if kind == "table":
        data = _table(content)
        if data is not None:
            return ImportedMedium(name, "table", step, time, data, about=about)
    mime = mimetypes.guess_type(path)[0] or "application/octet-stream"
    return ImportedMedium(name, kind, step, time, content=content, mime=mime, about=about)


def _histogram(value: dict[str, Any]) -> dict[str, Any] | None:
    counts, edges = value.get("values"), value.get("bins")
    packed = value.get("packedBins")
    if edges is None and isinstance(packed, dict):
        edges = [packed["min"] + packed["size"] * at for at in range(int(packed["count"]) + 1)]
    if not isinstance(counts, list) or not isinstance(edges, list) or len(edges) != len(counts) + 1 or not counts:
        return None
    numbers = [float(each) for each in (*edges, *counts)]
    if not all(math.isfinite(each) for each in numbers):
        return None
    return {"edges": numbers[: len(edges)], "counts": numbers[len(edges) :]}


def _table(content: bytes) -> dict[str, Any] | None:
    """Columns and rows; None if the table is large or malformed."""
    if len(content) > _TABLE_BYTES:
        return None
    try:
        raw = json.loads(content)
        columns, rows = list(raw["columns"]), [list(row) for row in raw["data"]]
    except (ValueError, KeyError, TypeError):
        return None
    return {"columns": [str(column) for column in columns], "rows": rows}
