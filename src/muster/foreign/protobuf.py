"""Protocol Buffers wire format: fields by number, without a schema compiler."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
Value = int | bytes  # a varint as an unsigned number, any other field as its bytes
_DOUBLE: Final = struct.Struct("<d")
_FLOAT: Final = struct.Struct("<f")
_LONGEST_VARINT: Final = 10  # bytes, for 64 bits


class Malformed(ValueError):
    """Bytes that are not a valid message."""


def fields(message: bytes) -> Iterator[tuple[int, Value]]:
    """Every field of a message with its number, in message order."""
    at, end = 0, len(message)
    while at < end:
        key = message[at]
        at += 1
        if key >= 0x80:
            key, at = varint_at(message, at - 1)
        kind = key & 7
        if kind == VARINT:
            value, at = varint_at(message, at)
            yield key >> 3, value
            continue
        if kind == BYTES:
            size, at = varint_at(message, at)
        elif kind == FIXED64:
            size = 8
        elif kind == FIXED32:
            size = 4
        else:
            raise Malformed(f"field {key >> 3} is of kind {kind}, which is none")
        if at + size > end:
            raise Malformed(f"field {key >> 3} wants {size} bytes and {end - at} are left")
        yield key >> 3, message[at : at + size]
        at += size


def varint_at(message: bytes, at: int) -> tuple[int, int]:
    """The number that begins at `at`, and the offset after it."""
    value = shift = 0
    for position in range(at, min(at + _LONGEST_VARINT, len(message))):
        byte = message[position]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFFFFFFFFFFFFFF, position + 1
        shift += 7
    raise Malformed("a number does not end")


def signed(value: Value) -> int:
    """The signed value of an int64 or int32 field."""
    number = whole(value)
    return number - (1 << 64) if number >= 1 << 63 else number


def whole(value: Value) -> int:
    if isinstance(value, bytes):
        raise Malformed("a number was expected")
    return value


def raw(value: Value) -> bytes:
    if isinstance(value, int):
        raise Malformed("bytes were expected")
    return value


def text(value: Value) -> str:
    """The text of a field. Invalid UTF-8 becomes replacement characters, so that one bad byte doesn't cost the run."""
    return raw(value).decode("utf-8", "replace").replace("\0", "�")


def double(value: Value) -> float:
    try:
        return float(_DOUBLE.unpack(raw(value))[0])
    except struct.error:
        raise Malformed("eight bytes were expected") from None


def single(value: Value) -> float:
    try:
        return float(_FLOAT.unpack(raw(value))[0])
    except struct.error:
        raise Malformed("four bytes were expected") from None


def varint(value: int) -> bytes:
    """An integer as a varint; a negative one takes ten bytes, as in int64 fields."""
    value &= 0xFFFFFFFFFFFFFFFF
    parts = bytearray()
    while value >= 0x80:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    parts.append(value)
    return bytes(parts)


def number_field(number: int, value: int) -> bytes:
    return varint(number << 3) + varint(value)


def double_field(number: int, value: float) -> bytes:
    return varint(number << 3 | FIXED64) + _DOUBLE.pack(value)


def single_field(number: int, value: float) -> bytes:
    """A float field. A value outside the range of a float becomes an infinity, as in a cast."""
    try:
        packed = _FLOAT.pack(value)
    except OverflowError:
        packed = _FLOAT.pack(float("inf") if value > 0 else float("-inf"))
    return varint(number << 3 | FIXED32) + packed


def bytes_field(number: int, value: bytes) -> bytes:
    return varint(number << 3 | BYTES) + varint(len(value)) + value


def text_field(number: int, value: str) -> bytes:
    return bytes_field(number, value.encode("utf-8", "replace"))
