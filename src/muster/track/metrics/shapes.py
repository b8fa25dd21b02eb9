"""What the metric store answers with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from muster.track.metrics.downsampled import Downsampled

Axis = Literal["step", "time"]


@dataclass(frozen=True, slots=True)
class Summary:
    """One series in a row. `last` is the value with the highest (attempt, step, time); extremes are None when every
    value was NaN, and are over all attempts, superseded points among them."""

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
    """The part of a curve that one attempt gave. Steps are those that are shown; None when nothing of it is."""

    attempt: int
    first_step: int | None
    last_step: int | None
    superseded_from: int | None  # a later attempt went back to this step; None when it stands to its end


@dataclass(frozen=True, slots=True)
class Curve:
    """Buckets in the order of the axis; `attempt` says which attempt each is of. `points`: all that they stand for."""

    name: str
    rank: int
    axis: Axis
    buckets: Downsampled
    attempt: NDArray[np.int32]
    bands: list[Band]

    @property
    def points(self) -> int:
        return int(self.buckets.count.sum())

    @property
    def raw(self) -> bool:
        """Whether every bucket is a single point."""
        return self.points == len(self.buckets)


@dataclass(frozen=True, slots=True)
class Points:
    """Points of one series in the order of their steps; arrays of one length."""

    step: NDArray[np.int64]
    time: NDArray[np.float64]
    value: NDArray[np.float64]
    attempt: NDArray[np.int32]

    def __len__(self) -> int:
        return len(self.step)


@dataclass(frozen=True, slots=True)
class Table:
    """Several series beside each other: a row for each step of each attempt, and one more for each repetition."""

    names: tuple[str, ...]
    step: NDArray[np.int64]  # (rows,)
    attempt: NDArray[np.int32]  # (rows,)
    time: NDArray[np.float64]  # (rows,) the earliest of the row
    values: NDArray[np.float64]  # (rows, names); NaN where nothing was reported
    given: NDArray[np.bool_]  # (rows, names) whether something was

    def __len__(self) -> int:
        return len(self.step)
