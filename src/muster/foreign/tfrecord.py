"""TFRecord files: a sequence of records, each with its length and two checksums."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from muster.foreign.crc32c import crc32c, masked

HEAD: Final = struct.Struct("<QI")  # length, checksum of its eight bytes
FOOT: Final = struct.Struct("<I")  # checksum of the record
FRAME: Final = HEAD.size + FOOT.size  # bytes around a record
_LONGEST: Final = 1 << 30  # bytes; a larger length is treated as damage
_CHUNK: Final = 4 << 20  # bytes read at a time


@dataclass(frozen=True, slots=True)
class Damage:
    """The offset at which a file is damaged, and the number of bytes that can't be read."""

    path: Path
    offset: int
    lost: int  # bytes
    what: str

    def __str__(self) -> str:
        return f"{self.path}: {self.what} at byte {self.offset}; {self.lost:,} bytes were left out"


def framed(record: bytes, checksum: int | None = None) -> bytes:
    """A record in the format of a file. A caller with a faster CRC-32C passes the `checksum`."""
    length = len(record)
    check = crc32c(record) if checksum is None else checksum
    return b"".join((HEAD.pack(length, masked(length_crc(length))), record, FOOT.pack(masked(check))))


def records(path: Path) -> Iterator[tuple[bytes, int] | Damage]:
    """Yields every record with its stored checksum; the caller verifies it.

    If the file is cut off or a length is wrong, ends with a `Damage`: the next record can't be found.
    """
    size = path.stat().st_size
    start = at = 0  # of the buffer in the file; of the next record in the buffer
    buffer = b""
    with path.open("rb") as file:
        while start + at < size:
            need = HEAD.size
            if len(buffer) - at >= need:
                length, check = HEAD.unpack_from(buffer, at)
                if length > _LONGEST or masked(length_crc(length)) != check:
                    yield Damage(path, start + at, size - start - at, "a record's length is damaged")
                    return
                need += length + FOOT.size
                if len(buffer) - at >= need:
                    begin = at + HEAD.size
                    yield buffer[begin : begin + length], FOOT.unpack_from(buffer, begin + length)[0]
                    at += need
                    continue
            start, buffer, at = start + at, buffer[at:], 0
            more = file.read(max(_CHUNK, need - len(buffer)))
            if not more:
                yield Damage(path, start, size - start, "the last record is cut off")
                return
            buffer += more


_crc_of_length: dict[int, int] = {}  # only few lengths occur, each thousands of times


def length_crc(length: int) -> int:
    known = _crc_of_length.get(length)
    if known is None:
        known = _crc_of_length[length] = crc32c(length.to_bytes(8, "little"))
        if len(_crc_of_length) > 100_000:
            _crc_of_length.clear()
    return known
