"""Files of an export: each is written completely or not at all. Media are stored beside the series."""

from __future__ import annotations

import mimetypes
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from muster.track.exporters.base import Medium, file_name, json_line


@contextmanager
def whole_file(path: Path, mode: str = "wb", **options: Any) -> Iterator[IO[Any]]:
    """A file that gets its name when the block succeeds; otherwise it is deleted."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name[:200]}.part")
    try:
        with draft.open(mode, **options) as file:
            yield file
        draft.replace(path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise


def write_media(media: Iterable[Medium], folder: Path) -> int:
    """Writes `media.jsonl` with a line per medium, and contents as files under `media/`. Returns their number."""
    listed = iter(media)
    first = next(listed, None)
    if first is None:
        return 0
    count = 0
    with whole_file(folder / "media.jsonl", "w", encoding="utf-8") as lines:
        for medium in _chained(first, listed):
            path = _write_content(medium, folder) if medium.content is not None else None
            lines.write(json_line(medium, path) + "\n")
            count += 1
    return count


def _chained(first: Medium, rest: Iterator[Medium]) -> Iterator[Medium]:
    yield first
    yield from rest


def _write_content(medium: Medium, folder: Path) -> str:
    ending = mimetypes.guess_extension(medium.mime.partition(";")[0]) or ".bin"
    path = f"media/{file_name(medium.name)}-{medium.step}-{medium.attempt}-{medium.rank}{ending}"
    with whole_file(folder / path) as file:
        file.write(medium.content)
    return path
