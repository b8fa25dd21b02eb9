"""Encoding of one row of the tail: a batch of columns in arrival order, uncompressed; shared data is written once.

    u32 groups, then for each group: u32 points, u32 names, u32 bytes of the list of names
    the lists of names, as JSON, end to end, and zeros up to a multiple of eight
    for each group: steps i64, times f64, then the values f64 of one name after another; little-endian

Metrics that were reported together are one group: ten thousand of them at one step share that step and its time.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from muster.store.base import Column
from muster.store.codec import dumps, loads

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_COUNT: Final = struct.Struct("<I")
_GROUP: Final = struct.Struct("<III")
_STEP: Final = np.dtype("<i8")
_REAL: Final = np.dtype("<f8")


@dataclass(frozen=True, slots=True)
class Group:
    """Metrics that share their steps and times."""

    names: tuple[str, ...]
    steps: Ints  # (points,)
    times: Floats  # (points,)
    values: Floats  # (names, points)


def group(columns: Mapping[str, Column]) -> list[Group]:
    """Groups columns with equal steps and times; empty columns are left out."""
    alike: dict[tuple[bytes, bytes], list[str]] = {}
    shared: dict[tuple[int, int], list[str]] = {}  # identical arrays need no comparison
    for name, column in columns.items():
        if not column.steps:
            continue
        same = (id(column.steps), id(column.times))
        names = shared.get(same)
        if names is None:
            key = (column.steps.tobytes(), column.times.tobytes())
            names = shared[same] = alike.setdefault(key, [])
        names.append(name)
    return [_group(names, columns) for names in alike.values()]


def encode(groups: list[Group]) -> bytes:
    lists = [dumps(one.names).encode() for one in groups]
    heads = [_GROUP.pack(len(one.steps), len(one.names), len(text)) for one, text in zip(groups, lists, strict=True)]
    head = b"".join([_COUNT.pack(len(groups)), *heads, *lists])
    parts: list[bytes] = [head, b"\0" * (-len(head) % 8)]
    for one in groups:
        parts += [one.steps.astype(_STEP).tobytes(), one.times.astype(_REAL).tobytes()]
        parts.append(one.values.astype(_REAL).tobytes())
    return b"".join(parts)


class TailReader:
    """Decodes rows. Lists of names, which rarely change from row to row, are parsed once."""

    def __init__(self) -> None:
        self._names: dict[bytes, tuple[str, ...]] = {}
        self._places: dict[bytes, dict[str, int]] = {}

    def groups(self, data: bytes) -> list[Group]:
        found = []
        for text, points, width, at in _layout(data):
            values = np.frombuffer(data, _REAL, width * points, at + 16 * points).reshape(width, points)
            found.append(Group(self._list(text), *_axes(data, points, at), values))
        return found

    def column(self, data: bytes, name: str) -> tuple[Ints, Floats, Floats] | None:
        """Steps, times and values of one name; None if the row doesn't have it."""
        for text, points, _, at in _layout(data):
            places = self._places.get(text)
            if places is None:
                places = self._places[text] = {each: place for place, each in enumerate(self._list(text))}
            place = places.get(name)
            if place is not None:
                return *_axes(data, points, at), np.frombuffer(data, _REAL, points, at + (16 + 8 * place) * points)
        return None

    def _list(self, text: bytes) -> tuple[str, ...]:
        names = self._names.get(text)
        if names is None:
            names = self._names[text] = tuple(loads(text))
        return names


def _group(names: list[str], columns: Mapping[str, Column]) -> Group:
    first = columns[names[0]]
    values = np.frombuffer(b"".join([columns[name].values.tobytes() for name in names]), np.float64)
    steps, times = np.array(first.steps, np.int64), np.array(first.times, np.float64)
    return Group(tuple(names), steps, times, values.reshape(len(names), len(steps)))


def _layout(data: bytes) -> Iterator[tuple[bytes, int, int, int]]:
    """For each group: list of names, points, number of names, and the offset of its steps."""
    (count,) = _COUNT.unpack_from(data)
    heads = list(_GROUP.iter_unpack(data[_COUNT.size : _COUNT.size + count * _GROUP.size]))
    text_at = _COUNT.size + count * _GROUP.size
    at = text_at + sum(length for _, _, length in heads)
    at += -at % 8
    for points, width, length in heads:
        yield data[text_at : text_at + length], points, width, at
        text_at += length
        at += (16 + 8 * width) * points


def _axes(data: bytes, points: int, at: int) -> tuple[Any, Any]:
    return np.frombuffer(data, _STEP, points, at), np.frombuffer(data, _REAL, points, at + 8 * points)
