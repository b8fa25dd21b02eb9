"""`muster scan`: looks for secrets in files, and for what could act when an artifact is loaded, without a server."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text

from muster.cli.call import Json, Usage
from muster.cli.output import emit, note, out
from muster.client.ignore import MADE, Ignore
from muster.core.units import format_size
from muster.scan.apart import Scanner
from muster.scan.files import TEXT_BYTES, TOO_LONG, look_at_text, reading_of
from muster.scan.findings import Finding

_LARGE = 100_000_000  # bytes, as the policy has it unless it says otherwise


def scan(
    paths: Annotated[list[Path], typer.Argument(metavar="PATH", help="Files and folders.")],
    json: Json = False,
) -> None:
    """Look for secrets in code, outputs in notebooks, large files, and artifacts that could run code when loaded.

    Nothing is loaded or sent. Of a folder, what .gitignore and .musterignore name is left out. The exit code is 1 if
    anything was found.
    """
    scanner, found, count = Scanner(), list[Finding](), 0
    try:
        for path in paths:
            if not path.exists():
                raise Usage(f"There is no {path}.", "Name files and folders: `muster scan .`")
            for file in _files(path):
                count += 1
                found += _look(file, scanner)
    finally:
        scanner.close()
    if json:
        emit({"files": count, "findings": [dict(one.to_dict()) for one in found]})
    else:
        for one in found:
            out().print(Text.assemble((one.place, "bold"), f": {one.what}", _size(one)))
        for hint in dict.fromkeys(one.hint.replace("{project}", "PROJECT") for one in found if one.hint):
            note((hint, "dim"))
        out().print(f"{count} {'file' if count == 1 else 'files'}, {len(found) or 'no'} findings")
    if found:
        raise typer.Exit(1)


def _files(path: Path) -> Iterator[Path]:
    if not path.is_dir():
        yield path
        return
    ignore = Ignore(path, (".gitignore", ".musterignore"), MADE)
    for folder, names, files in os.walk(path):
        at = Path(folder).relative_to(path)
        names[:] = sorted(name for name in names if not ignore.skips(_joined(at, name), True))
        for name in sorted(files):
            if not ignore.skips(_joined(at, name), False):
                yield Path(folder) / name


def _joined(at: Path, name: str) -> str:
    return (at / name).as_posix()


def _look(path: Path, scanner: Scanner) -> list[Finding]:
    place = str(path)
    try:
        if not path.is_file():  # a link to nothing, a pipe or a device
            return []
        size = path.stat().st_size
        with path.open("rb") as file:
            data = file.read(TEXT_BYTES + 1) if reading_of(place) else b""
            found = _texts(place, data, size)

            def read(start: int, stop: int) -> bytes:
                file.seek(start)
                return file.read(stop - start)

            found += scanner.scan(place, size, read)
    except (OSError, RuntimeError) as error:
        return [Finding("not_scanned", place, f"it can't be read: {error}", "See that you may read it.")]
    if size > _LARGE:
        found.append(Finding("large_file", place, "a large file", "List it in .musterignore; see `data`.", size))
    return found


def _texts(place: str, data: bytes, size: int) -> list[Finding]:
    reading = reading_of(place)
    if reading is None:
        return []
    if size > TEXT_BYTES:
        return [] if b"\0" in data[:8192] else [TOO_LONG.at(place)]
    return [one.at(place) for one in look_at_text(data, reading)]


def _size(one: Finding) -> Any:
    return f" ({format_size(one.size)})" if one.size else ""
