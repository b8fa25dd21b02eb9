"""CRC-32C of many records, or of a long one, computed in parallel lanes with NumPy."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from muster.foreign.crc32c import TABLE, crc32c

_TABLE: Final = np.array(TABLE, np.uint32)
_LANES: Final = 1024
_WORTH: Final = 4096  # bytes; for less, a loop is faster
_MASK_DELTA: Final = np.uint32(0xA282EAD8)


def crc32c_rows(rows: NDArray[np.uint8]) -> NDArray[np.uint32]:
    """The checksum of each row."""
    return _through(rows, np.uint32(0xFFFFFFFF)) ^ np.uint32(0xFFFFFFFF)


def masked_rows(crc: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """Like `crc32c.masked`, for many checksums."""
    return ((crc >> np.uint32(15)) | (crc << np.uint32(17))) + _MASK_DELTA


def crc32c_long(data: bytes) -> int:
    """The checksum of one record: its parts are computed in parallel lanes and then combined."""
    if len(data) < _WORTH:
        return crc32c(data)
    # Instead of starting with all ones, the first four bytes are inverted, which is equivalent. Then leading zeros
    # don't change the result, so the data can be padded until all lanes have the same length.
    width = -(-len(data) // _LANES)
    padded = np.zeros(_LANES * width, np.uint8)
    body = padded[len(padded) - len(data) :]
    body[:] = np.frombuffer(data, np.uint8)
    body[:4] ^= np.uint8(0xFF)
    register = 0
    ahead = _ahead(width)
    for lane in _through(padded.reshape(_LANES, width), np.uint32(0)).tolist():
        register = (
            ahead[0][register & 0xFF]
            ^ ahead[1][register >> 8 & 0xFF]
            ^ ahead[2][register >> 16 & 0xFF]
            ^ ahead[3][register >> 24]
            ^ lane
        )
    return register ^ 0xFFFFFFFF


def _through(rows: NDArray[np.uint8], start: np.uint32) -> NDArray[np.uint32]:
    register = np.full(len(rows), start, np.uint32)
    for column in np.ascontiguousarray(rows.T):
        register = _TABLE[(register ^ column) & np.uint32(0xFF)] ^ (register >> np.uint32(8))
    return register


@lru_cache(64)
def _ahead(zeros: int) -> list[list[int]]:
    """Four tables, one per byte of a register: the byte's contribution after this many zero bytes."""
    values = np.arange(256, dtype=np.uint32)
    register = np.concatenate([values << np.uint32(shift) for shift in (0, 8, 16, 24)])
    for _ in range(zeros):
        register = _TABLE[register & np.uint32(0xFF)] ^ (register >> np.uint32(8))
    return [part.tolist() for part in register.reshape(4, 256)]
