"""Encodes pictures as PNG files, from raw samples, with zlib only."""

from __future__ import annotations

import struct
import zlib
from typing import Final, NamedTuple

SIGNATURE: Final = b"\x89PNG\r\n\x1a\n"
_COLOURS: Final = {1: 0, 2: 4, 3: 2, 4: 6}  # channels: PNG's colour type (grey, grey + alpha, RGB, RGBA)
_LEVEL: Final = 3  # compression level: a third of the time of the usual 6 for a few percent of size


class Raster(NamedTuple):
    """8-bit samples, row by row from the top, channels interleaved."""

    width: int
    height: int
    channels: int
    samples: bytes


def encode(picture: Raster) -> bytes:
    """The content of the PNG file."""
    stride = picture.width * picture.channels
    if len(picture.samples) != stride * picture.height or picture.channels not in _COLOURS or not picture.samples:
        raise ValueError(
            f"{len(picture.samples)} bytes are not {picture.width} x {picture.height} pixels of "
            f"{picture.channels} channels; expected 1 to 4 channels of 8 bits"
        )
    rows = memoryview(picture.samples)
    # A zero byte before each row means that it is not filtered.
    lines = b"".join(part for at in range(0, len(rows), stride) for part in (b"\0", rows[at : at + stride]))
    header = struct.pack(">IIBBBBB", picture.width, picture.height, 8, _COLOURS[picture.channels], 0, 0, 0)
    body = [(b"IHDR", header), (b"IDAT", zlib.compress(lines, _LEVEL)), (b"IEND", b"")]
    return SIGNATURE + b"".join(_chunk(kind, data) for kind, data in body)


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
