"""Pieces of a curve: each stands for consecutive points, with their extent, extremes and mean.

A point is a piece of one. Pieces are merged into larger ones without reading the points. Only the position of values
inside a piece is lost. A block stores pieces of 64 points beside its points; long curves are drawn from them.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, fields
from itertools import groupby
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from muster.track.metrics.block import Floats, Ints, Samples, is_even, narrow

PIECE: Final = 64  # points

_HEAD: Final = struct.Struct("<BBxxIqq")  # version, flags, points, first step, stride
_VERSION: Final = 1
_EVEN, _SMALL, _NANS = 1, 2, 4  # flags: evenly spaced steps, 32-bit values, contains NaNs


@dataclass(frozen=True, slots=True)
class Downsampled:
    """Pieces as arrays of one length. `low`, `high` and `mean` ignore NaNs; they are NaN if all values are."""

    first_step: Ints  # the lowest
    last_step: Ints  # the highest
    first_time: Floats
    last_time: Floats
    count: Ints  # points, including NaNs
    nans: Ints
    low: Floats
    high: Floats
    mean: Floats
    last: Floats  # the value at the highest step

    def __len__(self) -> int:
        return len(self.count)

    def take(self, which: Any) -> Downsampled:
        return Downsampled(*(getattr(self, field.name)[which] for field in fields(self)))


def of_points(run: Samples) -> Downsampled:
    """One piece per point."""
    ones, nans = np.ones(len(run), np.int64), np.isnan(run.values).astype(np.int64)
    values = run.values
    return Downsampled(run.steps, run.steps, run.times, run.times, ones, nans, values, values, values, values)


def join(parts: list[Downsampled]) -> Downsampled:
    if len(parts) == 1:
        return parts[0]
    if not parts:
        return of_points(Samples(np.empty(0, np.int64), np.empty(0), np.empty(0)))
    return Downsampled(
        *(np.concatenate([getattr(part, field.name) for part in parts]) for field in fields(Downsampled))
    )


def reduce(downsampled: Downsampled, starts: Ints) -> Downsampled:
    """Merges pieces: a new one begins at each of `starts`, the first of which is 0."""
    ends = np.append(starts[1:], len(downsampled)) - 1
    count, nans = np.add.reduceat(downsampled.count, starts), np.add.reduceat(downsampled.nans, starts)
    low, high = np.fmin.reduceat(downsampled.low, starts), np.fmax.reduceat(downsampled.high, starts)
    with np.errstate(invalid="ignore", under="ignore"):  # the mean of both infinities is NaN
        # Weighted before adding: a sum of large numbers could overflow.
        numbers = downsampled.count - downsampled.nans
        whole = np.repeat(np.maximum(count - nans, 1), np.diff(np.append(starts, len(downsampled))))
        mean = np.add.reduceat(np.where(numbers > 0, downsampled.mean, 0.0) * (numbers / whole), starts)
        mean = np.clip(np.where(count > nans, mean, np.nan), low, high)  # rounding must not move it outside
    return Downsampled(
        np.minimum.reduceat(downsampled.first_step, starts),
        np.maximum.reduceat(downsampled.last_step, starts),
        np.minimum.reduceat(downsampled.first_time, starts),
        np.maximum.reduceat(downsampled.last_time, starts),
        count, nans, low, high, mean, downsampled.last[ends],
    )  # fmt: skip


def of_block(run: Samples) -> Downsampled:
    """Pieces of 64 points, in the order of arrival."""
    starts = np.arange(0, len(run), PIECE)
    downsampled = reduce(of_points(run), starts)
    if bool((run.steps[1:] >= run.steps[:-1]).all()):
        return downsampled
    order = np.lexsort((np.arange(len(run)), run.steps, np.arange(len(run)) // PIECE))
    downsampled.last[:] = run.values[order[np.append(starts[1:], len(run)) - 1]]
    return downsampled


def encode(run: Samples) -> bytes:
    """The pieces of a block. Steps and counts that can be computed from a few numbers are left out."""
    downsampled, differences = of_block(run), np.diff(run.steps)
    even = is_even(run.steps, differences)
    flags = (_EVEN if even else 0) | (_SMALL if narrow(run.values) is not None else 0)
    flags |= _NANS if downsampled.nans.any() else 0
    stride = int(differences[0]) if even and len(differences) else 0
    parts: list[NDArray[Any]] = [] if even else [downsampled.first_step, downsampled.last_step]
    parts += [downsampled.first_time, downsampled.last_time, downsampled.mean]
    with np.errstate(invalid="ignore"):
        parts += [each.astype(_real(flags)) for each in (downsampled.low, downsampled.high, downsampled.last)]
    if flags & _NANS:
        parts.append(downsampled.nans.astype(np.uint8))
    head = _HEAD.pack(_VERSION, flags, len(run), int(run.steps[0]), stride)
    return b"".join([head, *(part.tobytes() for part in parts)])


def decode(data: bytes) -> Downsampled:
    return decode_all([data])


def decode_all(blocks: Sequence[bytes]) -> Downsampled:
    """The pieces of these blocks, one after the other. Alike blocks are decoded together: most of a long curve are."""
    alike = groupby(blocks, key=lambda data: (*_HEAD.unpack_from(data)[:3], len(data)))
    return join([_decoded(version, flags, points, list(some)) for (version, flags, points, _), some in alike])


def _decoded(version: int, flags: int, points: int, blocks: list[bytes]) -> Downsampled:
    """Decodes blocks that have this head and one length."""
    if version != _VERSION:
        raise ValueError(f"pieces of metrics of version {version}; this server reads version {_VERSION}")
    number = -(-points // PIECE)
    count = np.full(number, PIECE, np.int64)
    count[-1] = points - PIECE * (number - 1)
    columns = _Columns(blocks, number)
    if flags & _EVEN:
        heads = [_HEAD.unpack_from(data) for data in blocks]
        step, stride = (np.array([head[at] for head in heads], np.int64)[:, None] for at in (3, 4))
        begin = step + np.arange(number, dtype=np.int64) * (PIECE * stride)
        end = begin + (count - 1) * stride
        first_step, last_step = np.minimum(begin, end).reshape(-1), np.maximum(begin, end).reshape(-1)
    else:
        first_step, last_step = columns.next(np.int64), columns.next(np.int64)
    first_time, last_time, mean = (columns.next(np.float64) for _ in range(3))
    low, high, last = (columns.next(_real(flags)).astype(np.float64) for _ in range(3))
    count = np.tile(count, len(blocks))
    nans = columns.next(np.uint8).astype(np.int64) if flags & _NANS else np.zeros(len(count), np.int64)
    return Downsampled(first_step, last_step, first_time, last_time, count, nans, low, high, mean, last)


def _real(flags: int) -> Any:
    return np.float32 if flags & _SMALL else np.float64


class _Columns:
    """Columns of several blocks of one shape, each end to end."""

    def __init__(self, blocks: list[bytes], number: int) -> None:
        self._rows = np.frombuffer(b"".join(blocks), np.uint8).reshape(len(blocks), -1)
        self._number, self._at = number, _HEAD.size

    def next(self, kind: Any) -> NDArray[Any]:
        begin = self._at
        self._at += self._number * np.dtype(kind).itemsize
        return np.ascontiguousarray(self._rows[:, begin : self._at]).reshape(-1).view(kind)
