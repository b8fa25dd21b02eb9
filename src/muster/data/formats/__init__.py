"""The data formats by name. To add one: a module with `write` and `open` (see base.py), and a line here."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from muster.data.dataset import Stored
from muster.data.errors import DataError
from muster.data.formats import mds, tar, tokens
from muster.data.formats.base import Format

FORMATS: Final[dict[str, Format]] = {
    "tokens": Format(tokens.write, tokens.open),
    "tar": Format(tar.write, tar.open),
    "mds": Format(mds.write, mds.open),
}


def open_dataset(format: str, folder: Path | str, **options: Any) -> Stored:
    """Opens a dataset by its format's name, with the format's own options (`length` for tokens, and `cache` for those
    whose `folder` is a remote address)."""
    if format not in FORMATS:
        raise DataError(f"{folder}: the format {format!r} isn't known. Give one of {', '.join(sorted(FORMATS))}.")
    try:
        return FORMATS[format].open(folder if options.get("cache") else Path(folder), **options)
    except TypeError as error:
        raise DataError(f"{folder}: the options {options} don't fit the format {format!r}: {error}") from error
