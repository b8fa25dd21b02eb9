"""The Matérn 5/2 kernel with a length for each parameter, and the coordinates that it is computed of."""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from muster.tune.model.cube import Array

_ROOT: Final = math.sqrt(5.0)


def squared_distances(left: Array, right: Array) -> Array:
    """(n, d), (m, d) → (n, m). By one product of matrices, which costs less than all differences."""
    found = np.sum(left * left, axis=1)[:, None] + np.sum(right * right, axis=1)[None, :] - 2.0 * (left @ right.T)
    return np.asarray(np.maximum(found, 0.0))


def matern(squared: Array) -> Array:
    """Of squared distances in lengths."""
    far = _ROOT * np.sqrt(squared)
    return np.asarray((1.0 + far + (5.0 / 3.0) * squared) * np.exp(-far))


def matern_with_slope(squared: Array) -> tuple[Array, Array]:
    """The kernel, and what its slope by the logarithm of a length is for each unit of squared distance."""
    far = _ROOT * np.sqrt(squared)
    falling = np.exp(-far)
    return (1.0 + far + (5.0 / 3.0) * squared) * falling, (5.0 / 3.0) * (1.0 + far) * falling
