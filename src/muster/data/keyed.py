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


@lru_cache(maxsize=4096)
def text_key(text: str) -> int:
    """A 64-bit hash of a text, the same in every process (Python's own `hash` is salted)."""
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "little")


def mix(values: U64) -> U64:
    """A 64-bit bijection in which every output bit depends on every input bit (the splitmix64 finalizer)."""
    values = values ^ (values >> np.uint64(30))
    values *= np.uint64(0xBF58476D1CE4E5B9)
    values ^= values >> np.uint64(27)
    values *= np.uint64(0x94D049BB133111EB)
    values ^= values >> np.uint64(31)
    return values


def chain(*parts: U64) -> U64:
    """One hash of several parts; their order matters. The parts broadcast like arrays."""
    state = np.zeros(1, np.uint64)
    for part in parts:
        state = mix((state ^ part) + np.uint64(0x9E3779B97F4A7C15))
    return state


def permute(values: U64, sizes: U64, keys: U64) -> U64:
    """The position of each value under the permutation of range(size) that its key selects.

    `values` is u64[n]; `sizes` and `keys` are u64[n], or u64[1] if all are the same, which is twice as fast. A Feistel
    network over a grid of about √size × √size cells. A result outside of range(size), of which there are fewer than
    √size, is mapped again until it is inside, which keeps it a permutation.
    """
    wide = np.ceil(np.sqrt(sizes.astype(np.float64))).astype(np.uint64)
    high = (sizes + wide - np.uint64(1)) // wide
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
    for number in range(_ROUNDS):
        key = keys + np.uint64((0x9E3779B97F4A7C15 * (number + 1)) & MASK)
        if number % 2 == 0:
            column = _shifted(column, mix(row ^ key), wide)
        else:
            row = _shifted(row, mix(column ^ key), high)
    return row * wide + column


def _shifted(places: U64, by: U64, size: U64) -> U64:
    """(places + by) % size, for places below size. NumPy divides by one number several times as fast as by many."""
    by -= by // size * size
    by += places
    by -= (by >= size) * size
    return by
