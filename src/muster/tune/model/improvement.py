"""The logarithm of the expected improvement, which still tells points apart where the improvement itself is 0."""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from muster.tune.model.cube import Array

_FAR: Final = -6.0  # deviations from which on a series is exact enough
_ROOT: Final = math.sqrt(2.0 * math.pi)


def log_improvement(mean: Array, variance: Array, best: float) -> Array:
    """log E[max(best - value, 0)]"""
    deviation = np.sqrt(variance)
    return np.asarray(np.log(deviation) + _log_unit((best - mean) / deviation))


def log_probability(at: Array) -> Array:
    """log Φ(z), of a normal distribution."""
    return np.array([math.log(max(0.5 * math.erfc(-one / math.sqrt(2.0)), 1e-300)) for one in at.tolist()])


def _log_unit(at: Array) -> Array:
    """log(z Φ(z) + φ(z))"""
    found = np.empty_like(at)
    near = at > _FAR
    close = at[near]
    tails = 0.5 * np.array([math.erfc(-one / math.sqrt(2.0)) for one in close.tolist()])
    found[near] = np.log(close * tails + np.exp(-0.5 * close * close) / _ROOT)
    far = at[~near]
    square = 1.0 / (far * far)
    series = square * (1.0 - square * (3.0 - square * (15.0 - 105.0 * square)))
    found[~near] = -0.5 * far * far - math.log(_ROOT) + np.log(series)
    return found
