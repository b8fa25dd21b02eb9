"""Opens a trace, plain or gzipped, and yields its lines, with a clear error for files that are not text."""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import IO, Final

from muster.core.errors import SpecError
from muster.sim.traces.base import unusable

HEAD: Final = 65_536  # characters that are read to detect the format
_EXPECTED: Final = "a trace as text in UTF-8, or such text packed with gzip"


def open_trace(path: Path) -> tuple[str, Iterator[str]]:
    """The beginning of the text, and all its lines. SpecError where there is no text to read."""
    name = str(path)
    lines = _lines(path)
    head: list[str] = []
    size = 0
    for line in lines:
        head.append(line)
        size += len(line)
        if size >= HEAD:
            break
    text = "".join(head)
    if not text.strip():
        raise unusable(name, "the whole file", "an empty file", "at least one job", "Check the path and the export.")
    if "\0" in text:
        raise _garbage(name, "bytes that are no text")
    return text, chain(head, lines)


def _lines(path: Path) -> Iterator[str]:
    name = str(path)
    try:
        with _bytes(path) as packed, io.TextIOWrapper(packed, encoding="utf-8-sig", newline=None) as file:
            yield from file
    except UnicodeDecodeError:
        raise _garbage(name, "bytes that are not UTF-8") from None
    except EOFError:
        given = "a gzip file that breaks off"
        raise unusable(name, "the end of the file", given, "a whole one", "Copy or download it again.") from None
    except (gzip.BadGzipFile, zlib.error) as error:
        given = f"a gzip file that is damaged ({error})"
        raise unusable(name, "the whole file", given, "a whole one", "Copy or download it again.") from None
    except FileNotFoundError:
        raise unusable(name, "the path", "no such file", "a trace", "Check the path.") from None
    except OSError as error:
        given = f"a file that can't be read ({error.strerror})"
        raise unusable(name, "the path", given, "a trace", "Check the path and its permissions.") from None


def _bytes(path: Path) -> IO[bytes]:
    file = path.open("rb")
    packed = file.read(2) == b"\x1f\x8b"
    file.seek(0)
    # A `GzipFile` does not close a file object that it is given, so let it open the path itself.
    if not packed:
        return file
    file.close()
    return gzip.open(path, "rb")  # type: ignore[return-value]


def _garbage(name: str, given: str) -> SpecError:
    hint = "Unpack it, or export it again as text."
    return unusable(name, "the whole file", given, _EXPECTED, hint)
