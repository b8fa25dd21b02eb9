"""Result types of the metric store."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from muster.track.metrics.downsampled import Downsampled

Axis = Literal["step", "time"]


@dataclass(frozen=True, slots=True)
class Summary:
    """Summary of one series. `last` is the value with the highest (attempt, step, time).

    Extremes are None if every value was NaN. They cover all attempts, including superseded points.
    """

    points: int
    nans: int
    last: float
    last_step: int
    last_time: float
    last_attempt: int
    low: float | None
    low_step: int | None
    high: float | None
    high_step: int | None


@dataclass(frozen=True, slots=True)
class Series:
    name: str
    rank: int
    summary: Summary


@dataclass(frozen=True, slots=True)
class Band:
    """The part of a curve that one attempt reported. The steps are the visible ones; None if none are."""

    attempt: int
    first_step: int | None
    last_step: int | None
    superseded_from: int | None  # a later attempt went back to this step; None if nothing is superseded


@dataclass(frozen=True, slots=True)
class Curve:
    """Buckets along the axis; `attempt` is the attempt of each. `points` is the number of points in all of them."""

    name: str
    rank: int
    axis: Axis
    buckets: Downsampled
    attempt: NDArray[np.int32]
    bands: list[Band]
    smooth: NDArray[np.float64] | None = None  # the moving average in each bucket, if it was asked for

    @property
    def points(self) -> int:
        return int(self.buckets.count.sum())

    @property
    def raw(self) -> bool:
        """Whether every bucket is a single point."""
        return self.points == len(self.buckets)


@dataclass(frozen=True, slots=True)
class Points:
    """Points of one series, sorted by step; arrays of one length."""

    step: NDArray[np.int64]
    time: NDArray[np.float64]
    value: NDArray[np.float64]
    attempt: NDArray[np.int32]

    def __len__(self) -> int:
        return len(self.step)


@dataclass(frozen=True, slots=True)
class Table:
    """Several series side by side: one row per step of each attempt, and another row for each repetition."""

    names: tuple[str, ...]
    step: NDArray[np.int64]  # (rows,)
    attempt: NDArray[np.int32]  # (rows,)
    time: NDArray[np.float64]  # (rows,) the earliest in the row
    values: NDArray[np.float64]  # (rows, names); NaN where there is no value
    given: NDArray[np.bool_]  # (rows, names) whether there is a value

    def __len__(self) -> int:
        return len(self.step)
