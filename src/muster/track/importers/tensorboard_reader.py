"""Reader of TensorBoard's event files: verifies the records and decodes their values."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from muster.foreign import tfrecord
from muster.foreign.protobuf import (
    Malformed,
    bytes_field,
    double,
    fields,
    raw,
    signed,
    single,
    text,
    text_field,
    varint_at,
    whole,
)
from muster.foreign.tfrecord import Damage
from muster.track.exporters.crc32c_batch import crc32c_long, crc32c_rows, masked_rows

_BATCH: Final = 8192  # records verified at a time
_BATCH_BYTES: Final = 16 << 20
# TensorFlow's types by number, and the numbers of fields that hold unpacked values.
_DTYPES: Final = {1: "<f4", 2: "<f8", 3: "<i4", 4: "u1", 5: "<i2", 6: "i1", 9: "<i8", 10: "?", 19: "<f2"}
_STRINGS: Final = 7
_DOUBLE: Final = struct.Struct("<d")
_FLOAT: Final = struct.Struct("<f")
Tags = dict[bytes, str]  # bytes of a record between its step and its value → the tag that they encode
_SINGLES, _DOUBLES, _INTS, _TEXTS, _LONGS, _BOOLS = 5, 6, 7, 8, 10, 11


@dataclass(slots=True)
class Tensor:
    numbers: NDArray[np.generic] | None = None
    texts: tuple[bytes, ...] = ()


@dataclass(slots=True)
class Value:
    """One value of an event. At most one of the last five fields is set."""

    tag: str = ""
    plugin: str = ""
    content: bytes = b""  # of the plug-in
    scalar: float | None = None
    histogram: bytes | None = None
    image: bytes | None = None
    audio: bytes | None = None
    tensor: bytes | None = None


@dataclass(slots=True)
class Event:
    time: float = 0.0
    step: int = 0
    values: tuple[Value, ...] = ()
    graph: bool = False


def events(path: Path) -> Iterator[Event | Damage]:
    """Yields every intact event; the others are skipped and reported as `Damage`."""
    batch: list[tuple[bytes, int]] = []
    tags: Tags = {}
    size = start = 0  # bytes in the batch; where it begins in the file
    for found in tfrecord.records(path):
        if isinstance(found, Damage):
            yield from _verified(path, start, batch, tags)
            yield found
            return
        batch.append(found)
        size += len(found[0])
        if len(batch) >= _BATCH or size >= _BATCH_BYTES:
            yield from _verified(path, start, batch, tags)
            start += size + len(batch) * tfrecord.FRAME
            batch, size = [], 0
    yield from _verified(path, start, batch, tags)


def tensor_of(message: bytes) -> Tensor:
    kind, packed, loose, texts = 0, b"", [], []
    for number, value in fields(message):
        if number == 1:
            kind = whole(value)
        elif number == 4:
            packed = raw(value)
        elif number == _TEXTS:
            texts.append(raw(value))
        elif number in (_SINGLES, _DOUBLES, _INTS, _LONGS, _BOOLS):
            loose.append(_loose(number, value))
    if kind == _STRINGS:
        return Tensor(texts=tuple(texts))
    dtype = _DTYPES.get(kind)
    if dtype is None:
        return Tensor()
    if packed:
        if len(packed) % np.dtype(dtype).itemsize:
            raise Malformed("a tensor's bytes are not whole numbers")
        return Tensor(np.frombuffer(packed, dtype))
    return Tensor(np.concatenate(loose) if loose else np.zeros(0, dtype))


def _verified(path: Path, at: int, batch: list[tuple[bytes, int]], tags: Tags) -> Iterator[Event | Damage]:
    bad = _wrong(batch)
    for place, (record, _) in enumerate(batch):
        size = len(record) + tfrecord.FRAME
        if place in bad:
            yield Damage(path, at, size, "a record's checksum is wrong")
        else:
            try:
                yield _scalar(record, tags) or _event(record)
            except Malformed as error:
                yield Damage(path, at, size, f"a record is no event ({error})")
        at += size


def _wrong(batch: list[tuple[bytes, int]]) -> set[int]:
    """Indexes of the records whose checksum is wrong. Records of the same length are checked together."""
    by_length: dict[int, list[int]] = {}
    for place, (record, _) in enumerate(batch):
        by_length.setdefault(len(record), []).append(place)
    bad: set[int] = set()
    for length, places in by_length.items():
        given = np.array([batch[place][1] for place in places], np.uint32)
        if len(places) < 4:
            crcs = np.array([crc32c_long(batch[place][0]) for place in places], np.uint32)
        else:
            joined = b"".join(batch[place][0] for place in places)
            crcs = crc32c_rows(np.frombuffer(joined, np.uint8).reshape(-1, length))
        bad.update(places[at] for at in np.flatnonzero(masked_rows(crcs) != given).tolist())
    return bad


def _scalar(record: bytes, tags: Tags) -> Event | None:
    """Fast path for nearly all records: a time, a step, and one scalar with a known tag."""
    if record[:1] != b"\x09" or record[9:10] != b"\x10":
        return None
    step, at = varint_at(record, 10)
    middle = record[at:-4]
    tag = tags.get(middle)
    if tag is None:
        event = _event(record)
        if len(event.values) == 1 and event.values[0].scalar is not None and middle[-1:] == b"\x15":
            (only,) = event.values
            if middle == bytes_field(5, bytes_field(1, text_field(1, only.tag) + b"\x15" + bytes(4)))[:-4]:
                tags[middle] = only.tag
        return event
    (value,) = _FLOAT.unpack_from(record, len(record) - 4)
    return Event(_DOUBLE.unpack_from(record, 1)[0], signed(step), (Value(tag, scalar=value),))


def _event(record: bytes) -> Event:
    event = Event()
    for number, value in fields(record):
        if number == 1:
            event.time = double(value)
        elif number == 2:
            event.step = signed(value)
        elif number == 5:
            event.values = tuple(_value(raw(each)) for at, each in fields(raw(value)) if at == 1)
        elif number in (4, 9):
            event.graph = True
    return event


def _value(message: bytes) -> Value:
    made = Value()
    for number, value in fields(message):
        if number == 1:
            made.tag = text(value)
        elif number == 2:
            made.scalar = single(value)
        elif number == 4:
            made.image = raw(value)
        elif number == 5:
            made.histogram = raw(value)
        elif number == 6:
            made.audio = raw(value)
        elif number == 8:
            made.tensor = raw(value)
        elif number == 9:
            made.plugin, made.content = _plugin(raw(value))
    return made


def _plugin(message: bytes) -> tuple[str, bytes]:
    name, content = "", b""
    for number, value in fields(message):
        if number == 1:
            for at, part in fields(raw(value)):
                if at == 1:
                    name = text(part)
                elif at == 2:
                    content = raw(part)
    return name, content


def _loose(number: int, value: int | bytes) -> NDArray[np.generic]:
    """Values of a repeated field, packed or single."""
    if number in (_SINGLES, _DOUBLES):
        data, size = raw(value), 4 if number == _SINGLES else 8
        if len(data) % size:
            raise Malformed("a tensor's numbers are cut off")
        return np.frombuffer(data, f"<f{size}")
    if isinstance(value, int):
        return np.array([signed(value)], np.int64)
    return np.array([signed(one) for one in _varints(value)], np.int64)


def _varints(data: bytes) -> Iterator[int]:
    number = shift = 0
    for byte in data:
        number |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            yield number & 0xFFFFFFFFFFFFFFFF
            number = shift = 0
