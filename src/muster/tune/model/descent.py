"""The minimum of a smooth function of a few numbers, by BFGS with a line search that halves its step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np

from muster.tune.model.cube import Array

_FURTHEST: Final = 1.0  # step of one number at once: of logarithms, a factor of 2.7
_HALVINGS: Final = 12


def minimum(function: Callable[[Array], tuple[float, Array]], start: Array, rounds: int, enough: float = 1e-4) -> Array:
    """Where the function, which returns its value and its slope, is lowest near the start. It ends after `rounds`, or
    when a round gains less than `enough` of the value."""
    here, (value, slope) = start, function(start)
    inverse = np.eye(len(start))  # of the curvature, as far as it is known
    for _ in range(rounds):
        way = -inverse @ slope
        if way @ slope >= 0.0:
            inverse, way = np.eye(len(start)), -slope
        size = min(1.0, _FURTHEST / max(float(np.abs(way).max()), 1e-12))
        for _ in range(_HALVINGS):
            there = here + size * way
            lower, next_slope = function(there)
            if lower <= value + 1e-4 * size * float(way @ slope):
                break
            size *= 0.5
        else:
            break
        gained = value - lower
        inverse = _updated(inverse, there - here, next_slope - slope)
        here, value, slope = there, lower, next_slope
        if gained < enough * max(1.0, abs(value)):
            break
    return here


def _updated(inverse: Array, moved: Array, turned: Array) -> Array:
    along = float(moved @ turned)
    if along <= 1e-10:
        return inverse
    if np.array_equal(inverse, np.eye(len(moved))):
        inverse = inverse * (along / float(turned @ turned))
    left = np.eye(len(moved)) - np.outer(moved, turned) / along
    return np.asarray(left @ inverse @ left.T + np.outer(moved, moved) / along)
