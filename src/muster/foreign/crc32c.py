"""CRC-32C (Castagnoli), the checksum of every record in a TFRecord file."""

from __future__ import annotations

from typing import Final

_POLYNOMIAL: Final = 0x82F63B78  # reflected
_MASK_DELTA: Final = 0xA282EAD8


def crc32c(data: bytes | memoryview, crc: int = 0) -> int:
    """The checksum of `data`, continued from `crc`. Takes about 70 ns per byte."""
    register = crc ^ 0xFFFFFFFF
    table = TABLE
    for byte in data:
        register = table[(register ^ byte) & 0xFF] ^ (register >> 8)
    return register ^ 0xFFFFFFFF


def masked(crc: int) -> int:
    """The checksum in the masked form that files contain: a CRC over bytes that contain a plain CRC would be weak."""
    return (((crc >> 15) | (crc << 17)) + _MASK_DELTA) & 0xFFFFFFFF


def _table() -> tuple[int, ...]:
    entries = []
    for value in range(256):
        for _ in range(8):
            value = (value >> 1) ^ (_POLYNOMIAL if value & 1 else 0)
        entries.append(value)
    return tuple(entries)


TABLE: Final = _table()
