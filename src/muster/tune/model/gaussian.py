"""A Gaussian process over coordinates: its parameters by what is most likely, and what it expects at other points.

Values are expected to have mean 0 and deviation 1. A row may be trusted less than others: its noise is `doubt` times
the common one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from muster.tune.model.cube import Array
from muster.tune.model.descent import minimum
from muster.tune.model.kernel import matern, matern_with_slope, squared_distances

ROUNDS: Final = 30
# What is likely before anything is measured, of logarithms: mean and deviation. A length grows with the root of the
# number of parameters, so that points are as near to each other in a space of many.
LENGTH: Final = (0.7, 1.0)
SIGNAL: Final = (0.0, 1.0)
NOISE: Final = (math.log(1e-2), 1.5)
_JITTER: Final = 1e-8
_LEAST: Final = 1e-10  # variance


class NotComputable(Exception):
    """The numbers are such that the matrix of the process can't be inverted."""


@dataclass(frozen=True, slots=True)
class Shape:
    """The logarithms of the parameters of a process: the length of each parameter of the space, signal and noise."""

    lengths: tuple[float, ...]
    signal: float
    noise: float

    @property
    def oddity(self) -> float:
        """How far it is from what is likely before anything is measured: minus its logarithm, but for a constant."""
        usual = usual_shape(len(self.lengths))
        off = sum((one - mean) ** 2 for one, mean in zip(self.lengths, usual.lengths, strict=True)) / LENGTH[1] ** 2
        off += (self.signal - SIGNAL[0]) ** 2 / SIGNAL[1] ** 2 + (self.noise - NOISE[0]) ** 2 / NOISE[1] ** 2
        return 0.5 * off

    def moved(self, steps: Array) -> Shape:
        """With these added to its numbers."""
        *lengths, signal, noise = (np.array([*self.lengths, self.signal, self.noise]) + steps).tolist()
        return Shape(tuple(lengths), signal, noise)

    def scaled(self, coordinates: Array, owner: NDArray[np.intp]) -> Array:
        return np.asarray(coordinates * np.exp(-np.array(self.lengths))[owner])


def usual_shape(width: int) -> Shape:
    return Shape((LENGTH[0] + 0.5 * math.log(max(width, 1)),) * width, SIGNAL[0], NOISE[0])


def fit(coordinates: Array, owner: NDArray[np.intp], values: Array, doubt: Array, rounds: int = ROUNDS) -> Shape:
    """The shape that makes the values most likely. (n, d), (d,), (n,), (n,)"""
    width = int(owner.max()) + 1 if len(owner) else 0
    usual = usual_shape(width)
    start = np.array([*usual.lengths, usual.signal, usual.noise])
    spread = np.array([LENGTH[1]] * width + [SIGNAL[1], NOISE[1]])
    apart = _distances_by_parameter(coordinates, owner, width)
    count = len(values)

    def loss(at: Array) -> tuple[float, Array]:
        nearness = np.exp(-2.0 * at[:width])
        signal, noise = math.exp(at[width]), math.exp(at[width + 1])
        alike, falling = matern_with_slope(nearness @ apart)
        matrix = signal * alike.reshape(count, count) + np.diag(noise * doubt + _JITTER)
        try:
            root = np.linalg.cholesky(matrix)
        except np.linalg.LinAlgError:
            return math.inf, np.zeros_like(at)
        inverse = np.linalg.inv(matrix)
        weights = inverse @ values
        rest = np.outer(weights, weights) - inverse
        off = (at - start) / spread
        value = 0.5 * float(values @ weights) + float(np.log(np.diag(root)).sum()) + 0.5 * float(off @ off)
        slope = np.empty_like(at)
        slope[:width] = -0.5 * signal * (apart @ (rest.reshape(-1) * falling)) * nearness
        slope[width] = -0.5 * signal * float(rest.reshape(-1) @ alike)
        slope[width + 1] = -0.5 * noise * float(np.diag(rest) @ doubt)
        return value, slope + off / spread

    found = minimum(loss, start, rounds)
    return Shape(tuple(found[:width].tolist()), float(found[width]), float(found[width + 1]))


class Gaussian:
    """A process of one shape that has seen some rows."""

    def __init__(self, shape: Shape, coordinates: Array, owner: NDArray[np.intp], values: Array, doubt: Array) -> None:
        self.shape, self.coordinates, self.owner, self.values, self.doubt = shape, coordinates, owner, values, doubt
        self.signal, self.noise = math.exp(shape.signal), math.exp(shape.noise)
        self.rows = shape.scaled(coordinates, owner)
        matrix = self.covariance(self.rows, self.rows)
        self._inverse = inverted(matrix + np.diag(self.noise * doubt + _JITTER))
        self._weights = self._inverse @ values

    def shaped(self, shape: Shape) -> Gaussian:
        """Another process that has seen the same rows."""
        return Gaussian(shape, self.coordinates, self.owner, self.values, self.doubt)

    @property
    def log_probability(self) -> float:
        """Of the values and the shape, but for a constant."""
        fit = 0.5 * float(self.values @ self._weights)
        return 0.5 * float(np.linalg.slogdet(self._inverse)[1]) - fit - self.shape.oddity

    def surprises(self) -> Array:
        """What each row differs from what the others say of it."""
        return np.asarray(self._weights / np.diag(self._inverse))

    def likeness(self, coordinates: Array) -> Array:
        """(m, d) → (m, n)"""
        return self.covariance(self.shape.scaled(coordinates, self.owner), self.rows)

    def covariance(self, left: Array, right: Array) -> Array:
        """Of scaled rows."""
        return np.asarray(self.signal * matern(squared_distances(left, right)))

    def mean(self, likeness: Array) -> Array:
        return np.asarray(likeness @ self._weights)

    def variance(self, likeness: Array) -> Array:
        """Of the value without noise."""
        known = np.sum(self.solved(likeness) * likeness, axis=1)
        return np.asarray(np.maximum(self.signal - known, _LEAST))

    def solved(self, likeness: Array) -> Array:
        return np.asarray(likeness @ self._inverse)


class Watched:
    """A process as if some points had been measured too and had brought what it expects of them: its means are the
    same, and its variance near them is less."""

    def __init__(self, process: Gaussian, coordinates: Array) -> None:
        self._process = process
        self._rows = process.shape.scaled(coordinates, process.owner)
        likeness = process.likeness(coordinates)
        self._solved = process.solved(likeness)
        matrix = process.covariance(self._rows, self._rows) - self._solved @ likeness.T
        self._inverse = inverted(matrix + np.diag(np.full(len(matrix), process.noise + _JITTER)))

    def expected(self, coordinates: Array) -> tuple[Array, Array]:
        """Mean and variance."""
        likeness = self._process.likeness(coordinates)
        mean, variance = self._process.mean(likeness), self._process.variance(likeness)
        if not len(self._rows):
            return mean, variance
        scaled = self._process.shape.scaled(coordinates, self._process.owner)
        rest = self._process.covariance(scaled, self._rows) - likeness @ self._solved.T
        known = np.sum((rest @ self._inverse) * rest, axis=1)
        return mean, np.asarray(np.maximum(variance - known, _LEAST))


def inverted(matrix: Array) -> Array:
    """Raises NotComputable."""
    try:
        found = np.linalg.inv(matrix)
    except np.linalg.LinAlgError:
        raise NotComputable from None
    if not np.isfinite(found).all():
        raise NotComputable
    return np.asarray(found, dtype=np.float64)


def _distances_by_parameter(coordinates: Array, owner: NDArray[np.intp], width: int) -> Array:
    """Squared distances of all pairs of rows, by parameter: (width, n * n)."""
    count = len(coordinates)
    found = np.zeros((width, count * count))
    for column, parameter in enumerate(owner.tolist()):
        off = coordinates[:, column, None] - coordinates[None, :, column]
        found[parameter] += (off * off).reshape(-1)
    return found
