"""Points that a model is asked about: drawn everywhere, and around good ones."""

from __future__ import annotations

from typing import Final

import numpy as np

from muster.tune.model.cube import Array, Cube

MOST_LISTED: Final = 1_000  # points of a space that are all looked at
_WIDTHS: Final = (0.2, 0.05, 0.01)  # of the steps of numbers, each as likely
_MORE: Final = 0.4  # the probability that another parameter is changed too


def anywhere(cube: Cube, random: np.random.Generator, count: int) -> Array:
    return np.asarray(random.random((count, cube.width)))


def around(cube: Cube, random: np.random.Generator, centers: Array, each: int) -> Array:
    """`each` neighbours of every center: one parameter is changed, sometimes more. A parameter that was not there has
    any value, for a neighbour where it is."""
    base = np.repeat(centers, each, axis=0)
    count, width = base.shape
    if not width:
        return base
    order = np.argsort(random.random((count, width)), axis=1)
    changed = order < np.minimum(random.geometric(1 - _MORE, size=(count, 1)), width)
    steps = random.normal(size=(count, width)) * random.choice(_WIDTHS, size=(count, 1))
    steps = np.sign(steps) * np.maximum(np.abs(steps), cube.parts)  # to another value
    drawn = random.random((count, width))
    moved = np.where(cube.unordered, drawn, base + steps)
    absent = base == 0.5
    moved = np.where(absent & (drawn < 0.5), random.random((count, width)), moved)
    return np.asarray(np.clip(np.where(changed, moved, base), 0.0, 1.0))
