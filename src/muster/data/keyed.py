"""Keyed hashes and permutations on whole arrays: the same on every machine, with nothing stored."""

from __future__ import annotations

from functools import lru_cache
from hashlib import blake2b
from typing import Final

import numpy as np
from numpy.typing import NDArray

U64 = NDArray[np.uint64]
MASK: Final = (1 << 64) - 1
_ROUNDS: Final = 8  # half rounds: four look random on large sizes, eight also give every order of a handful its chance


@lru_cache(maxsize=4096)
def text_key(text: str) -> int:
    """64 bits that stand for a text, the same in every process (Python's own `hash` is salted)."""
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "little")


def mix(values: U64) -> U64:
    """A bijection of 64 bits in which every bit of the result depends on every bit given (the splitmix64 finish)."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


def chain(*parts: U64) -> U64:
    """One hash of several parts, in which their order counts. They broadcast as arrays do."""
    state = np.zeros(1, np.uint64)
    for part in parts:
        state = mix((state ^ part) + np.uint64(0x9E3779B97F4A7C15))
    return state


def permute(values: U64, sizes: U64, keys: U64) -> U64:
    """Where each value goes under the permutation of range(size) that its key names; all three are u64[n].

    A Feistel network over a grid of about √size × √size cells. The few cells past the size (fewer than √size) lead on
    to the next place of their cycle until it is inside, which keeps it a permutation.
    """
    wide = np.ceil(np.sqrt(sizes.astype(np.float64))).astype(np.uint64)
    high = (sizes + wide - np.uint64(1)) // wide
    result = _network(values, wide, high, keys)
    outside = np.flatnonzero(result >= sizes)
    while outside.size:
        result[outside] = _network(result[outside], wide[outside], high[outside], keys[outside])
        outside = outside[result[outside] >= sizes[outside]]
    return result


def _network(values: U64, wide: U64, high: U64, keys: U64) -> U64:
    """A permutation of range(wide * high): each half round shifts one coordinate by a hash of the other."""
    column, row = values % wide, values // wide
    for number in range(_ROUNDS):
        key = keys + np.uint64((0x9E3779B97F4A7C15 * (number + 1)) & MASK)
        if number % 2 == 0:
            column = (column + mix(row ^ key) % wide) % wide
        else:
            row = (row + mix(column ^ key) % high) % high
    return row * wide + column
