"""Statistics of groups of runs: means with confidence intervals, Welch's t-test, Holm's correction.

Values may be any finite numbers: they are scaled by a power of two, which is exact, so that no square overflows or
vanishes. A result that is too large for a float is the largest float.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Final

FEW: Final = 5  # runs in a group; with fewer, a test means little, and the result says so
MOST_PAIRED: Final = 8  # groups up to which every pair is tested; with more, each against the best
_TINY: Final = 1e-300
_ENOUGH: Final = 1e-15
_LARGEST: Final = sys.float_info.max


@dataclass(frozen=True, slots=True)
class Estimate:
    """`low` and `high` are the confidence interval of the mean; None with fewer than two values."""

    count: int
    mean: float | None
    deviation: float | None  # of the sample
    low: float | None
    high: float | None


@dataclass(frozen=True, slots=True)
class Difference:
    """Mean of the first minus mean of the second, with its interval; `p` is None if no test is possible."""

    first: int  # index of the group
    second: int
    difference: float | None
    low: float | None
    high: float | None
    t: float | None
    freedom: float | None
    p: float | None
    adjusted: float | None  # p with Holm's correction over all tests
    why: str = ""  # why there is no test, or why it means little


def estimate(values: Sequence[float], level: float = 0.95) -> Estimate:
    count = len(values)
    if not count:
        return Estimate(0, None, None, None, None)
    power = _power(values)
    scaled = [math.ldexp(value, -power) for value in values]
    mean = min(max(math.fsum(scaled) / count, min(scaled)), max(scaled))  # the quotient is rounded
    if count == 1:
        return Estimate(1, values[0], None, None, None)
    deviation = math.sqrt(_variance(scaled, mean))
    reach = t_quantile(0.5 + level / 2, count - 1) * deviation / math.sqrt(count)
    numbers = (mean, deviation, mean - reach, mean + reach)
    return Estimate(count, *(_scaled(number, power) for number in numbers))


def compare_groups(groups: Sequence[Sequence[float]], best: int = 0, level: float = 0.95) -> list[Difference]:
    """Tests every pair of groups, or with many groups each against `best`; p is corrected for the number of tests."""
    places = range(len(groups))
    pairs = list(combinations(places, 2)) if len(groups) <= MOST_PAIRED else [(best, i) for i in places if i != best]
    tested = [welch(groups[a], groups[b], level, (a, b)) for a, b in pairs]
    found = [one.p for one in tested if one.p is not None]
    adjusted = iter(holm(found))
    return [_with(one, next(adjusted) if one.p is not None else None) for one in tested]


def welch(
    first: Sequence[float], second: Sequence[float], level: float = 0.95, places: tuple[int, int] = (0, 1)
) -> Difference:
    """Welch's t-test, which doesn't assume equal variances."""
    power = _power([*first, *second])
    one, other = (estimate([math.ldexp(value, -power) for value in side], level) for side in (first, second))
    if one.mean is None or other.mean is None:
        return Difference(*places, None, None, None, None, None, None, None, "a group has no value")
    apart = one.mean - other.mean
    difference = _scaled(apart, power)
    if one.deviation is None or other.deviation is None:
        return Difference(*places, difference, None, None, None, None, None, None, "a test needs 2 runs in each group")
    errors = (one.deviation / math.sqrt(one.count), other.deviation / math.sqrt(other.count))
    largest = max(errors)
    if largest == 0:
        return Difference(
            *places, difference, None, None, None, None, None, None, "no group varies: nothing to test against"
        )
    a, b = ((error / largest) ** 2 for error in errors)  # one of them is 1
    freedom = (a + b) ** 2 / (a**2 / (one.count - 1) + b**2 / (other.count - 1))
    error = largest * math.sqrt(a + b)
    t = _scaled(apart / error, 0)
    reach = t_quantile(0.5 + level / 2, freedom) * error
    few = min(one.count, other.count) < FEW
    why = f"fewer than {FEW} runs in a group: a real difference is easily missed" if few else ""
    low, high = _scaled(apart - reach, power), _scaled(apart + reach, power)
    return Difference(*places, difference, low, high, t, freedom, t_two_sided(t, freedom), None, why)


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's step-down correction, in the given order: bounds the probability of any false positive among all tests."""
    order = sorted(range(len(p_values)), key=lambda i: p_values[i])
    adjusted = [0.0] * len(p_values)
    highest = 0.0
    for rank, i in enumerate(order):
        highest = max(highest, min(1.0, (len(p_values) - rank) * p_values[i]))
        adjusted[i] = highest
    return adjusted


def t_two_sided(t: float, freedom: float) -> float:
    """The probability of a |t| at least this large under Student's distribution."""
    return incomplete_beta(freedom / 2, 0.5, freedom / (freedom + t * t))


def t_quantile(chance: float, freedom: float) -> float:
    """The quantile of Student's distribution, for probabilities from 0.5 up to 1."""
    tail = 2 * (1 - chance)
    low, high = 0.0, 1.0
    while t_two_sided(high, freedom) > tail:
        low, high = high, high * 2
    for _ in range(200):
        middle = (low + high) / 2
        if middle in (low, high):
            break
        low, high = (middle, high) if t_two_sided(middle, freedom) > tail else (low, middle)
    return (low + high) / 2


def incomplete_beta(a: float, b: float, x: float) -> float:
    """The regularised incomplete beta function, by its continued fraction on the side where that converges fast."""
    if x <= 0 or x >= 1:
        return 0.0 if x <= 0 else 1.0
    front = math.exp(math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x))
    if x < (a + 1) / (a + b + 2):
        return front * _fraction(a, b, x) / a
    return 1.0 - front * _fraction(b, a, 1 - x) / b


def _fraction(a: float, b: float, x: float) -> float:
    """Lentz's method: numerator and denominator are kept away from zero."""
    c, d = 1.0, 1.0 / _apart(1 - (a + b) * x / (a + 1))
    total = d
    for m in range(1, 10_000):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        d, c = 1.0 / _apart(1 + even * d), _apart(1 + even / c)
        total *= d * c
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        d, c = 1.0 / _apart(1 + odd * d), _apart(1 + odd / c)
        total *= d * c
        if abs(d * c - 1) < _ENOUGH:
            break
    return total


def _apart(value: float) -> float:
    return value if abs(value) > _TINY else _TINY


def _variance(values: Sequence[float], mean: float) -> float:
    return math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1)


def _power(values: Sequence[float]) -> int:
    """The power of two by which the largest of the values is from 0.5 to 1."""
    return max((math.frexp(value)[1] for value in values if value), default=0)


def _scaled(number: float, power: int) -> float:
    """number · 2**power, or the largest float of its sign."""
    try:
        found = math.ldexp(number, power)
    except OverflowError:
        found = math.copysign(math.inf, number)
    return max(-_LARGEST, min(found, _LARGEST))


def _with(one: Difference, adjusted: float | None) -> Difference:
    numbers = (one.difference, one.low, one.high, one.t, one.freedom, one.p)
    return Difference(one.first, one.second, *numbers, adjusted, one.why)
