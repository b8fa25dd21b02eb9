"""Keyed hashes and permutations of whole arrays: the same on every machine, with nothing stored."""

from __future__ import annotations

from functools import lru_cache
from hashlib import blake2b
from typing import Final

import numpy as np
from numpy.typing import NDArray

U64 = NDArray[np.uint64]
MASK: Final = (1 << 64) - 1
_ROUNDS: Final = 8  # half rounds: four look random on large sizes; eight also reach every order of very small sizes

_SIDE: Final = 1 << 15  # of the largest grid whose shifts are kept in tables: 2 MiB for a billion values
_MANY: Final = 1024  # values for which tables are used


@lru_cache(maxsize=4096)
def text_key(text: str) -> int:
    """A 64-bit hash of a text, the same in every process (Python's own `hash` is salted)."""
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "little")


def mix(values: U64) -> U64:
    """A 64-bit bijection in which every output bit depends on every input bit (the splitmix64 finalizer)."""
    return _mixed(values.copy(), np.empty_like(values))


def chain(*parts: U64) -> U64:
    """One hash of several parts; their order matters. The parts broadcast like arrays."""
    state = np.zeros(1, np.uint64)
    for part in parts:
        state = state ^ part
        state += np.uint64(0x9E3779B97F4A7C15)
        state = _mixed(state, np.empty_like(state))
    return state


def permute(values: U64, sizes: U64, keys: U64) -> U64:
    """The position of each value under the permutation of range(size) that its key selects.

    `values` is u64[n]; `sizes` and `keys` are u64[n], or u64[1] if all are the same, which is several times as fast. A
    Feistel network over a grid of about √size × √size cells. A result outside of range(size), of which there are fewer
    than √size, is mapped again until it is inside, which keeps it a permutation.
    """
    wide = np.ceil(np.sqrt(sizes.astype(np.float64))).astype(np.uint64)
    high = (sizes + wide - np.uint64(1)) // wide
    if len(sizes) == len(keys) == 1 and wide[0] <= _SIDE and len(values) >= _MANY:
        result = _looked_up(values, int(wide[0]), int(high[0]), int(keys[0]))
    else:
        result = _network(values, wide, high, keys)
    outside = np.flatnonzero(result >= sizes)
    while outside.size:
        each = [part if len(part) == 1 else part[outside] for part in (wide, high, keys, sizes)]
        result[outside] = _network(result[outside], *each[:3])
        outside = outside[result[outside] >= each[3]]
    return result


def _network(values: U64, wide: U64, high: U64, keys: U64) -> U64:
    """A permutation of range(wide * high): each half round shifts one coordinate by a hash of the other."""
    row = values // wide
    column = values - row * wide
    by, spare = np.empty_like(row), np.empty_like(row)
    for number in range(_ROUNDS):
        key = keys + np.uint64((0x9E3779B97F4A7C15 * (number + 1)) & MASK)
        fixed, moved, size = (row, column, wide) if number % 2 == 0 else (column, row, high)
        _shift(moved, _mixed(np.bitwise_xor(fixed, key, out=by), spare), size, spare)
    row *= wide
    row += column
    return row


def _looked_up(values: U64, wide: int, high: int, key: int) -> U64:
    """`_network` with one key: a coordinate has few values, and the shifts by all of them are kept in tables."""
    row = values // np.uint64(wide)
    column = values - row * np.uint64(wide)
    by = np.empty_like(row)
    for number, table in enumerate(_tables(wide, high, key)):
        fixed, moved, size = (row, column, wide) if number % 2 == 0 else (column, row, high)
        moved += table.take(fixed.view(np.int64), out=by, mode="clip")
        np.minimum(moved, np.subtract(moved, np.uint64(size), out=by), out=moved)
    row *= np.uint64(wide)
    row += column
    return row


@lru_cache(maxsize=8)
def _tables(wide: int, high: int, key: int) -> tuple[U64, ...]:
    """For each half round the shift of one coordinate by each value of the other."""
    found = []
    for number in range(_ROUNDS):
        length, size = (high, wide) if number % 2 == 0 else (wide, high)
        values = np.arange(length, dtype=np.uint64) ^ np.uint64((key + 0x9E3779B97F4A7C15 * (number + 1)) & MASK)
        shifts = mix(values)
        shifts -= shifts // np.uint64(size) * np.uint64(size)
        found.append(shifts)
    return tuple(found)


def _mixed(values: U64, spare: U64) -> U64:
    """`mix`, in place. `spare` is overwritten: new arrays would cost as much as the sums."""
    values ^= np.right_shift(values, np.uint64(30), out=spare)
    values *= np.uint64(0xBF58476D1CE4E5B9)
    values ^= np.right_shift(values, np.uint64(27), out=spare)
    values *= np.uint64(0x94D049BB133111EB)
    values ^= np.right_shift(values, np.uint64(31), out=spare)
    return values


def _shift(places: U64, by: U64, size: U64, spare: U64) -> None:
    """(places + by) % size, in place, for places below size. NumPy divides by one number several times as fast as by
    many, and takes no remainder faster than by dividing."""
    np.floor_divide(by, size, out=spare)
    spare *= size
    by -= spare
    places += by
    np.subtract(places, size, out=spare)  # where places are below size it wraps around, to a huge number
    np.minimum(places, spare, out=places)
