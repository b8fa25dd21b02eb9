"""From a short run to the whole: the profile of its steps, and the time and cost of all steps with a band."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

import numpy as np

WARM_UP: Final = 0.1  # of the steps, at most ten, that count as start-up and not as steady
BLOCKS: Final = 8  # of the steady steps: their means are nearly independent
T_90: Final = 1.895  # of Student's t with 7 degrees of freedom: nine of ten bands hold the mean
PERCENTILES: Final = (10, 50, 90, 99)


@dataclass(frozen=True, slots=True)
class Profile:
    """What a short run shows. Seconds, bytes."""

    steps: int
    start_up: float  # until the first step begins, and what the first steps took beyond a steady one
    mean: float  # of a steady step
    low: float  # band of that mean
    high: float
    percentiles: Mapping[int, float]  # of steady steps
    items_per_second: float | None = None
    peak_memory: float | None = None
    headroom: float | None = None  # of the memory that there is, as a part

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "percentiles": {f"p{each}": value for each, value in self.percentiles.items()}}


@dataclass(frozen=True, slots=True)
class Forecast:
    """Of the full run: hours, and cost in the currency of the price. (low, expected, high)."""

    steps: int
    hours: tuple[float, float, float]
    cost: tuple[float, float, float] | None = None

    def __str__(self) -> str:
        low, middle, high = self.hours
        words = f"{self.steps:,} steps take {middle:.3g} h ({low:.3g} to {high:.3g})"
        if self.cost is not None:
            words += f" and cost {self.cost[1]:.4g} ({self.cost[0]:.4g} to {self.cost[2]:.4g})"
        return words


def profile(
    seconds: Sequence[float],
    *,
    start_up: float = 0.0,
    items: float | None = None,
    memory: Sequence[float] = (),
    capacity: float | None = None,
) -> Profile:
    """Of a run whose steps took so many seconds, with so many items each. Raises ValueError for fewer than 16 steps."""
    every = np.asarray(seconds, np.float64)
    warm = min(10, math.ceil(WARM_UP * len(every)))
    steady = every[warm:]
    length = len(steady) // BLOCKS
    if not length or len(every) < 2 * BLOCKS:
        raise ValueError(f"{len(every)} steps are too few for a profile; {2 * BLOCKS} or more")
    means = steady[len(steady) - BLOCKS * length :].reshape(BLOCKS, length).mean(1)
    mean, error = float(steady.mean()), float(means.std(ddof=1)) / math.sqrt(BLOCKS)
    beyond = max(0.0, float(every[:warm].sum()) - warm * mean)
    peak = max(memory) if memory else None
    return Profile(
        len(every), start_up + beyond, mean, max(0.0, mean - T_90 * error), mean + T_90 * error,
        {each: float(np.percentile(steady, each)) for each in PERCENTILES},
        items / mean if items and mean > 0 else None, peak,
        1 - peak / capacity if peak is not None and capacity else None,
    )  # fmt: skip


def forecast(found: Profile, steps: int, price_per_hour: float | None = None) -> Forecast:
    """Nine of ten such bands hold what the full run takes, if its steps go on as the profile's."""
    low, middle, high = ((found.start_up + steps * each) / 3600 for each in (found.low, found.mean, found.high))
    cost = (
        (low * price_per_hour, middle * price_per_hour, high * price_per_hour) if price_per_hour is not None else None
    )
    return Forecast(steps, (low, middle, high), cost)
