"""Lossless encoding of the points of one series as the bytes of a block.

    steps    first and stride if they are evenly spaced, else first and differences
    times    first and differences of their bit patterns, which grow with the times: exact, and small numbers
    values   as 32-bit floats if that is lossless, else as 64-bit floats

Arrays are split into byte planes (all first bytes, all second bytes, ...), and each plane is compressed if that pays:
the noise in the low bytes of a measurement is not worth the time, the other bytes are nearly always the same.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bytes = NDArray[np.uint8]

_HEAD: Final = struct.Struct("<BBxxIqqq")  # version, flags, points, first step, stride, first time's bits
_VERSION: Final = 1
_EVEN: Final = 1  # flag: the steps are first + i * stride
_SMALL: Final = 2  # flag: the values are 32-bit numbers
_PLANE: Final = struct.Struct("<BI")  # encoding, bytes
_RAW, _PACKED, _SAME = 0, 1, 2  # a plane: unchanged, compressed, or one byte if all are equal
_ALL_RAW, _ALL_PACKED = 3, 4  # all planes together
_FEW: Final = 512  # numbers; for fewer, encoding each plane separately costs more than it saves
_NOISE: Final = 7.0  # bits per byte; a plane with more entropy is not compressed
_LEVEL: Final = 1


@dataclass(frozen=True, slots=True)
class Samples:
    """Points of one series in one attempt, in order of arrival; three arrays of one length."""

    steps: Ints
    times: Floats
    values: Floats

    def __len__(self) -> int:
        return len(self.steps)

    def take(self, which: Any) -> Samples:
        """The points that an index, a slice or a mask selects."""
        return Samples(self.steps[which], self.times[which], self.values[which])


def join(runs: list[Samples]) -> Samples:
    if len(runs) == 1:
        return runs[0]
    return Samples(
        np.concatenate([run.steps for run in runs] or [np.empty(0, np.int64)]),
        np.concatenate([run.times for run in runs] or [np.empty(0)]),
        np.concatenate([run.values for run in runs] or [np.empty(0)]),
    )


def encode(run: Samples) -> bytes:
    """Needs at least one point."""
    ticks = np.ascontiguousarray(run.times).view(np.int64)
    differences = np.diff(run.steps)  # may overflow; the sum in `decode` reverses it
    stride = int(differences[0]) if len(differences) else 0
    even = is_even(run.steps, differences)
    small = narrow(run.values)
    flags = (_EVEN if even else 0) | (_SMALL if small is not None else 0)
    parts = [_HEAD.pack(_VERSION, flags, len(run), int(run.steps[0]), stride, int(ticks[0]))]
    if not even:
        parts += _planes(differences)
    parts += _planes(np.diff(ticks))
    parts += _planes(run.values if small is None else small)
    return b"".join(parts)


def decode(data: bytes) -> Samples:
    version, flags, points, step, stride, tick = _HEAD.unpack_from(data)
    if version != _VERSION:
        raise ValueError(f"a block of metrics of version {version}; this server reads version {_VERSION}")
    reader = _Reader(data, _HEAD.size)
    if flags & _EVEN:
        steps = step + np.arange(points, dtype=np.int64) * stride
    else:
        steps = _summed(step, reader.planes(points - 1, 8).view(np.int64))
    times = _summed(tick, reader.planes(points - 1, 8).view(np.int64)).view(np.float64)
    if flags & _SMALL:
        values = reader.planes(points, 4).view(np.float32).astype(np.float64)
    else:
        values = reader.planes(points, 8).view(np.float64)
    return Samples(steps, times, values)


def is_even(steps: Ints, differences: Ints) -> bool:
    """Whether the steps are evenly spaced, without an integer overflow."""
    if not len(differences):
        return True
    stride = int(differences[0])
    return int(steps[0]) + stride * len(differences) == int(steps[-1]) and bool((differences == stride).all())


def narrow(numbers: Floats) -> NDArray[np.float32] | None:
    """The values as 32-bit floats if that is lossless, including the payload of a NaN; else None."""
    values = np.ascontiguousarray(numbers)
    with np.errstate(over="ignore", invalid="ignore"):
        small = values.astype(np.float32)
        back = small.astype(np.float64)
    return small if np.array_equal(back.view(np.int64), values.view(np.int64)) else None


def _planes(numbers: NDArray[Any]) -> list[bytes]:
    planes = np.ascontiguousarray(numbers).view(np.uint8).reshape(len(numbers), numbers.dtype.itemsize).T
    if len(numbers) <= _FEW:
        raw = planes.tobytes()
        packed = zlib.compress(raw, _LEVEL)
        if len(packed) < len(raw):
            return [_PLANE.pack(_ALL_PACKED, len(packed)), packed]
        return [_PLANE.pack(_ALL_RAW, len(raw)), raw]
    return [part for plane in planes for part in _plane(np.ascontiguousarray(plane))]


def _plane(plane: Bytes) -> tuple[bytes, bytes]:
    raw = plane.tobytes()
    if raw and raw.count(raw[0]) == len(raw):
        return _PLANE.pack(_SAME, 1), raw[:1]
    if _entropy(plane) < _NOISE:
        packed = zlib.compress(raw, _LEVEL)
        if len(packed) < len(raw):
            return _PLANE.pack(_PACKED, len(packed)), packed
    return _PLANE.pack(_RAW, len(raw)), raw


def _entropy(plane: Bytes) -> float:
    """Entropy in bits per byte, for independent bytes."""
    counts = np.bincount(plane)
    shares = counts[counts > 0] / len(plane)
    return float(-(shares * np.log2(shares)).sum())


def _summed(first: int, differences: Ints) -> Ints:
    numbers = np.empty(len(differences) + 1, np.int64)
    numbers[0] = first
    numbers[1:] = differences
    return np.cumsum(numbers)  # overflows silently, as the differences did


class _Reader:
    def __init__(self, data: bytes, at: int) -> None:
        self._data, self._at = data, at

    def planes(self, count: int, width: int) -> Bytes:
        """`count` numbers of `width` bytes each, as bytes."""
        kind, length = _PLANE.unpack_from(self._data, self._at)
        if kind in (_ALL_RAW, _ALL_PACKED):
            begin = self._at + _PLANE.size
            self._at = begin + length
            raw = self._data[begin : self._at]
            planes = np.frombuffer(zlib.decompress(raw) if kind == _ALL_PACKED else raw, np.uint8)
            return np.ascontiguousarray(planes.reshape(width, count).T).reshape(-1)
        numbers = np.empty((count, width), np.uint8)
        for place in range(width):
            numbers[:, place] = self._plane()
        return numbers.reshape(-1)

    def _plane(self) -> Any:
        kind, length = _PLANE.unpack_from(self._data, self._at)
        begin = self._at + _PLANE.size
        self._at = begin + length
        if kind == _SAME:
            return self._data[begin]
        if kind == _PACKED:
            return np.frombuffer(zlib.decompress(self._data[begin : self._at]), np.uint8)
        return np.frombuffer(self._data, np.uint8, length, begin)
