"""The Sobol sequence: points that fill the unit cube evenly, however many of them are taken.

The direction numbers are computed: primitive polynomials over two elements are found by trial, and the numbers that are
free are drawn from a fixed seed. A seed shifts the digits of all points, which keeps their evenness.
"""

from __future__ import annotations

from functools import cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from muster.tune.model.cube import Array

BITS: Final = 32
_FIXED: Final = 20_260_101


def sobol_point(width: int, index: int, seed: int) -> Array:
    """Point `index` of the sequence that this seed shifts. (width,)"""
    if width == 0:
        return np.zeros(0)
    directions = _directions(width)
    digits = np.zeros(width, dtype=np.uint64)
    gray = index ^ (index >> 1)
    for bit in range(min(gray.bit_length(), BITS)):
        if gray >> bit & 1:
            digits ^= directions[:, bit]
    shift = np.random.default_rng((seed, width)).integers(0, 2**BITS, size=width, dtype=np.uint64)
    return np.asarray(((digits ^ shift) + 0.5) / 2.0**BITS)


@cache
def _directions(width: int) -> NDArray[np.uint64]:
    """(width, BITS)"""
    draw = np.random.default_rng(_FIXED)
    found = np.zeros((width, BITS), dtype=np.uint64)
    found[0] = [1 << (BITS - 1 - bit) for bit in range(BITS)]
    for row, polynomial in enumerate(_primitive(width - 1), start=1):
        degree = polynomial.bit_length() - 1
        free = [2 * int(draw.integers(0, 1 << bit)) + 1 for bit in range(degree)]
        found[row] = [number << (BITS - 1 - bit) for bit, number in enumerate(_recurrence(polynomial, free))]
    return found


def _recurrence(polynomial: int, numbers: list[int]) -> list[int]:
    degree = polynomial.bit_length() - 1
    found = numbers[:BITS]
    while len(found) < BITS:
        number = found[-degree] ^ (found[-degree] << degree)
        for step in range(1, degree):
            if polynomial >> (degree - step) & 1:
                number ^= found[-step] << step
        found.append(number)
    return found


def _primitive(count: int) -> list[int]:
    """The first primitive polynomials over two elements, as numbers whose bits are the coefficients."""
    found: list[int] = []
    candidate = 3
    while len(found) < count:
        if _is_primitive(candidate):
            found.append(candidate)
        candidate += 2
    return found


def _is_primitive(polynomial: int) -> bool:
    """Whether the powers of x, modulo the polynomial, return to 1 after all others and not before."""
    degree = polynomial.bit_length() - 1
    order = (1 << degree) - 1
    return _power(order, polynomial) == 1 and all(
        _power(order // factor, polynomial) != 1 for factor in range(2, order) if order % factor == 0
    )


def _power(exponent: int, polynomial: int) -> int:
    """x to this power, modulo the polynomial."""
    result, base = 1, _reduced(2, polynomial)
    while exponent:
        if exponent & 1:
            result = _product(result, base, polynomial)
        base = _product(base, base, polynomial)
        exponent >>= 1
    return result


def _product(left: int, right: int, polynomial: int) -> int:
    total = 0
    while right:
        if right & 1:
            total ^= left
        left, right = _reduced(left << 1, polynomial), right >> 1
    return total


def _reduced(number: int, polynomial: int) -> int:
    return number ^ polynomial if number.bit_length() == polynomial.bit_length() else number
