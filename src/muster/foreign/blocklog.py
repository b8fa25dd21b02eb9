"""Reader of W&B's log files (`run-*.wandb`), a LevelDB log: records are split at the ends of 32 kB blocks."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from muster.foreign.tfrecord import Damage

MAGIC: Final = b":W&B"
_HEADER: Final = struct.Struct("<4sHB")  # ident, magic number, version
_NUMBER: Final = 0xBEE1
_PIECE: Final = struct.Struct("<IHB")  # checksum of kind and data, length, kind
_BLOCK: Final = 32768
_WHOLE, _FIRST, _MIDDLE, _LAST = 1, 2, 3, 4


def is_log(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(len(MAGIC)) == MAGIC


def records(path: Path) -> Iterator[bytes | Damage]:
    """Yields every complete record. A damaged block is skipped and reported as `Damage`.

    Raises ValueError if the file is not a W&B log.
    """
    data = path.read_bytes()
    if len(data) < _HEADER.size or _HEADER.unpack_from(data) != (MAGIC, _NUMBER, 0):
        raise ValueError(f"{path} is no W&B log: it begins with {data[:7]!r}.")
    at, parts, begun = _HEADER.size, b"", False
    while at < len(data):
        left = _BLOCK - at % _BLOCK
        if left < _PIECE.size:  # too short for a piece: filled with zeros
            at += left
            continue
        piece = _piece(data, at)
        if isinstance(piece, str):
            following = min(at + left, len(data))
            if any(data[at:following]):  # a preallocated file ends in zeros
                yield Damage(path, at, following - at, piece)
            at, parts, begun = following, b"", False
            continue
        kind, body = piece
        at += _PIECE.size + len(body)
        if kind in (_WHOLE, _FIRST):
            parts, begun = body, True
        elif begun:
            parts += body
        if begun and kind in (_WHOLE, _LAST):
            yield parts
            parts, begun = b"", False
    if begun:
        yield Damage(path, len(data) - len(parts), len(parts), "the last record is cut off")


def _piece(data: bytes, at: int) -> tuple[int, bytes] | str:
    """The kind and bytes of a piece, or an error text."""
    if at + _PIECE.size > len(data):
        return "a record's header is cut off"
    check, length, kind = _PIECE.unpack_from(data, at)
    body = data[at + _PIECE.size : at + _PIECE.size + length]
    if (
        len(body) < length
        or _PIECE.size + length > _BLOCK - at % _BLOCK
        or kind not in (_WHOLE, _FIRST, _MIDDLE, _LAST)
    ):
        return "a record is cut off or damaged"
    if zlib.crc32(body, zlib.crc32(bytes((kind,)))) not in (check, _unmasked(check)):
        return "a record's checksum is wrong"
    return kind, body


def _unmasked(check: int) -> int:
    """The checksum without LevelDB's mask. W&B's writers did not always mask it."""
    turned = (check - 0xA282EAD8) & 0xFFFFFFFF
    return ((turned >> 17) | (turned << 15)) & 0xFFFFFFFF
