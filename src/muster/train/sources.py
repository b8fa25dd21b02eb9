"""Says what data a run trains and is evaluated on: each source with a fingerprint that changes when its files do."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

from muster import runtime
from muster.data.files import INDEX
from muster.runtime.checks import KEY_MAX
from muster.train.config import SourceSettings
from muster.train.plan import Plan


def report_sources(plan: Plan) -> None:
    """One `data` document a source; a task that brings samples of its own is told by their names and sizes."""
    config = plan.config.data
    for role, given, data in (("train", config.sources, plan.data), ("evaluate", config.evaluate, plan.held_out)):
        by_name = {source.name or source.path: source for source in given}
        for supply in data.supplies if data is not None else ():
            source = by_name.get(supply.name)
            about: dict[str, Any] = {"split": role, "weight": supply.weight}
            if source is not None:
                about["format"] = source.format
            runtime.data(supply.name[-KEY_MAX:], rows=len(supply.samples), **_where(source), **about)


def fingerprint(path: Path) -> tuple[str, int] | None:
    """Of a file or folder: the names and sizes of its files and the text of its index, which has their checksums where
    the format keeps such; and the bytes of all. None when it can't be read. It reads no data."""
    try:
        files = sorted(_files(path))
        found = {name: size for name, size, _ in files}
        indices = {name: place.read_text("utf-8") for name, _, place in files if place.name == INDEX}
    except (OSError, ValueError):
        return None
    text = json.dumps([found, indices], sort_keys=True)
    return f"files:{hashlib.sha256(text.encode()).hexdigest()}", sum(found.values())


def _where(source: SourceSettings | None) -> dict[str, Any]:
    if source is None:
        return {}
    place: dict[str, Any] = {"uri": str(Path(source.path).absolute())}
    found = fingerprint(Path(source.path))
    return place | ({"digest": found[0], "bytes": found[1]} if found else {})


def _files(path: Path) -> list[tuple[str, int, Path]]:
    if path.is_file():
        return [(path.name, path.stat().st_size, path)]
    found = []
    for parent, _, names in os.walk(path):
        for name in names:
            place = Path(parent, name)
            found.append((place.relative_to(path).as_posix(), place.stat().st_size, place))
    return found
