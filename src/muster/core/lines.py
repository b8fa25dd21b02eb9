"""Lines of a stream of bytes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator


class ByteLines:
    """Complete lines as they arrive. Splitting text would also split at U+0085 and U+2028, which JSON may contain."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """The lines that this piece completes, without their line breaks."""
        *whole, self._rest = (self._rest + chunk).split(b"\n")
        return (line.removesuffix(b"\r") for line in whole)


def byte_lines(chunks: Iterable[bytes]) -> Iterator[bytes]:
    lines = ByteLines()
    for chunk in chunks:
        yield from lines.feed(chunk)
