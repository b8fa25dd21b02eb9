"""Reports the data of a run's training and evaluation: each source, with a fingerprint of its files."""

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
    """Reports one `data` document per source. Samples that a task provides itself are reported by name and size."""
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
    """A fingerprint of a file or folder, and its total bytes: from the names and sizes of its files and the text of its
    index, which has checksums in some formats. None if it can't be read. Reads no data."""
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
