"""The operations of a pickle with their arguments, read one by one without loading anything.

Arguments are read as the unpickler reads them, and never checked further: what `pickletools` refuses, a loader may
take, and would have run what came before it in any case.
"""

from __future__ import annotations

import pickletools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from muster.scan.reader import Reader

LINE: Final = 64 << 20  # bytes of an argument that ends with its line
_KEPT: Final = 16 << 20  # bytes of an argument that are kept; of a longer one only that it is there


@dataclass(frozen=True, slots=True)
class Skipped:
    """An argument that is too long to keep."""

    size: int


Argument = bytes | int | Skipped | tuple[bytes, bytes] | None


def operations(reader: Reader) -> Iterator[tuple[str, Argument]]:
    """Up to STOP. Raises EOFError or ValueError where the stream breaks."""
    while True:
        code = reader.exactly(1)
        found = _CODES.get(code)
        if found is None:
            raise ValueError(f"byte {reader.at - 1} is no operation")
        name, size = found
        if name in ("GLOBAL", "INST"):
            yield name, (reader.line(LINE), reader.line(LINE))
        elif size is None:
            yield name, None
        elif size == pickletools.UP_TO_NEWLINE:
            yield name, reader.line(LINE)
        elif size >= 0:
            yield name, int.from_bytes(reader.exactly(size), "little")
        else:
            yield name, _counted(reader, _COUNTS[size])
        if name == "STOP":
            return


def _counted(reader: Reader, width: int) -> bytes | Skipped:
    length = int.from_bytes(reader.exactly(width), "little")
    if length > _KEPT:
        reader.skip(length)
        return Skipped(length)
    return reader.exactly(length)


_COUNTS: Final = {
    pickletools.TAKEN_FROM_ARGUMENT1: 1,
    pickletools.TAKEN_FROM_ARGUMENT4: 4,
    pickletools.TAKEN_FROM_ARGUMENT4U: 4,
    pickletools.TAKEN_FROM_ARGUMENT8U: 8,
}
_CODES: Final[dict[bytes, tuple[str, int | None]]] = {
    op.code.encode("latin-1"): (op.name, op.arg.n if op.arg is not None else None) for op in pickletools.opcodes
}
