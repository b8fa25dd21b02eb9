"""Lines of a stream of bytes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator


def byte_lines(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Whole lines as they come. Text would be split at U+0085 or U+2028 as well, which are ordinary inside of JSON."""
    rest = b""
    for chunk in chunks:
        *whole, rest = (rest + chunk).split(b"\n")
        yield from (line.removesuffix(b"\r") for line in whole)
