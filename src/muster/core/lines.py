"""Lines of a stream of bytes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator


def byte_lines(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Complete lines as they arrive. Splitting text would also split at U+0085 and U+2028, which JSON may contain."""
    rest = b""
    for chunk in chunks:
        *whole, rest = (rest + chunk).split(b"\n")
        yield from (line.removesuffix(b"\r") for line in whole)
