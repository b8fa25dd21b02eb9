"""Whether a series falls: an exact test on means of blocks, so long that neighbouring steps' likeness doesn't count.

The Mann-Kendall test counts pairs of block means that rise. If nothing falls, all orders of independent means are
equally likely, whatever their distribution, which gives the error rate exactly. Means of blocks are nearly independent
if a block is much longer than the series remembers; that length is estimated, with a margin for the error of the
estimate. Without room for five such blocks there is no verdict, but the number of steps that would allow one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

BLOCKS: Final = (12, 10, 8, 6, 5)  # numbers of blocks, the first that fits is taken
SHORTEST: Final = 8  # steps in a block
LIKENESS: Final = 0.05  # of neighbouring block means, at most: simulated, the error rate is then the stated one
PIECES: Final = 5  # of which each gets its own line, when the memory of a series is estimated
_MARGIN: Final = 1.0  # standard errors of the estimate
_MOST: Final = 0.999


@dataclass(frozen=True, slots=True)
class Trend:
    """`p` is the probability of an order as falling as this one if nothing falls; None without a verdict."""

    p: float | None
    blocks: int
    length: int  # steps in a block
    likeness: float  # estimated correlation of neighbouring steps
    first: float  # mean of the first block, or of the first fifth
    last: float
    needed: int = 0  # steps for a verdict, if there is none

    def falls(self, alpha: float) -> bool | None:
        """None: not decided."""
        return None if self.p is None else self.p <= alpha


def trend(values: Sequence[float]) -> Trend:
    """Of finite values, in their order."""
    series = np.asarray(values, np.float64)
    likeness = _likeness(series)
    memory = likeness / (1 - likeness * likeness)
    for blocks in BLOCKS:
        length = len(series) // blocks
        if length >= SHORTEST and memory <= LIKENESS * length:
            means = series[len(series) - blocks * length :].reshape(blocks, length).mean(1)
            return Trend(probability(means), blocks, length, likeness, float(means[0]), float(means[-1]))
    fifth = max(1, len(series) // PIECES)
    needed = BLOCKS[-1] * max(SHORTEST, math.ceil(memory / LIKENESS))
    first, last = float(series[:fifth].mean()), float(series[-fifth:].mean())
    return Trend(None, 0, 0, likeness, first, last, max(needed, len(series) + 1))


def probability(means: NDArray[np.float64]) -> float:
    """Of so few rising pairs or fewer, if every order is equally likely."""
    count = len(means)
    rising = sum(bool(means[late] >= means[early]) for early in range(count) for late in range(early + 1, count))
    return float(_orders(count)[: rising + 1].sum())


def _likeness(series: NDArray[np.float64]) -> float:
    """The correlation of neighbouring steps about a line in each piece, its small-sample error corrected."""
    length = len(series) // PIECES
    if length < SHORTEST:
        return 0.0
    time = np.arange(length) - (length - 1) / 2
    found = []
    for piece in range(PIECES):
        part = series[piece * length : (piece + 1) * length]
        part = part - part.mean()
        part = part - time * (time @ part) / (time @ time)
        found.append(float(part[1:] @ part[:-1]) / max(float(part @ part), 1e-300))
    middle = min(_MOST, max(0.0, (float(np.median(found)) * length + 2) / (length - 4)))
    return min(_MOST, middle + _MARGIN * math.sqrt((1 - middle * middle) / len(series)))


@cache
def _orders(count: int) -> NDArray[np.float64]:
    """The probability of each number of rising pairs in a random order."""
    found = np.ones(1)
    for size in range(2, count + 1):
        found = np.convolve(found, np.full(size, 1 / size))
    return found
