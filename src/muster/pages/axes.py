"""Axes of charts: their range, their scale, and their ticks at round numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

_WAITS: Final = (
    (1, "1 s"), (10, "10 s"), (60, "1 min"), (600, "10 min"), (3600, "1 h"), (36_000, "10 h"), (86_400, "1 d"),
    (864_000, "10 d"), (8_640_000, "100 d"), (86_400_000, "1,000 d"),
)  # fmt: skip
_STEPS: Final = (
    (1, "s"), (5, "s"), (10, "s"), (30, "s"), (60, "min"), (300, "min"), (600, "min"), (1800, "min"), (3600, "h"),
    (2 * 3600, "h"), (6 * 3600, "h"), (12 * 3600, "h"), (86_400, "d"), (2 * 86_400, "d"), (5 * 86_400, "d"),
    (10 * 86_400, "d"), (20 * 86_400, "d"), (50 * 86_400, "d"), (100 * 86_400, "d"),
)  # fmt: skip
_PARTS: Final = (0.25, 0.3, 0.4, 0.5, 0.6, 0.75, 1.0, 1.25, 1.5, 2.0, 2.5)  # of a power of ten: readable steps
_LEAST: Final = 1e-300  # the shortest axis
_MOST_POWERS: Final = 1e200  # of the ends of a logarithmic axis
_UNIT: Final = {"s": 1, "min": 60, "h": 3600, "d": 86_400}


@dataclass(frozen=True, slots=True)
class Axis:
    low: float
    high: float
    ticks: tuple[tuple[float, str], ...]
    title: str
    log: bool = False

    def place(self, value: float) -> float:
        """The position of a value on the axis, from 0 to 1."""
        if self.log:
            whole = math.log(self.high / self.low)
            return math.log(max(value, self.low) / self.low) / whole if whole else 0.0
        return (value - self.low) / (self.high - self.low) if self.high > self.low else 0.0

    def within(self, value: float) -> float:
        """The value, or the end of the axis that is nearest to it."""
        return min(max(value, self.low), self.high)


def waits_axis(longest: float) -> Axis:
    """Seconds on a logarithmic scale, from one second."""
    high = max(60.0, longest)
    return Axis(1.0, high, tuple((float(at), words) for at, words in _WAITS if at <= high), "time", log=True)


def time_axis(start: float, end: float, title: str = "time since the start of the trace") -> Axis:
    """Seconds since some beginning."""
    start = 0.0 if start < end / 20 else start
    length = max(end - start, 1.0)
    step, unit = next(((step, unit) for step, unit in _STEPS if length / step <= 9), _STEPS[-1])
    first = math.ceil(start / step)
    ticks = tuple((n * step, f"{n * step / _UNIT[unit]:g} {unit}") for n in range(first, int(end // step) + 1))
    return Axis(start, start + length, ticks[:60], title)


def share_axis(title: str) -> Axis:
    return Axis(0.0, 1.0, tuple((part / 4, f"{part * 25}%") for part in range(5)), title)


def count_axis(most: float, title: str) -> Axis:
    """An axis from 0 to a round number above `most`."""
    power = 10.0 ** math.floor(math.log10(max(most, 1.0)))
    step = next(power * part for part in _PARTS if most <= power * part * 4)
    step = max(step, 1.0)
    return Axis(0.0, 4 * step, tuple((part * step, f"{part * step:,.0f}") for part in range(5)), title)


def value_axis(low: float, high: float, title: str, log: bool = False, room: float = 0.05, most: int = 5) -> Axis:
    """An axis of any numbers, with some room at both ends; `room`: a share of its length."""
    if log and 0 < low < high <= _MOST_POWERS * low:
        extra = (high / low) ** room
        return Axis(low / extra, high * extra, _powers(low / extra, high * extra), title, log=True)
    if high - low <= max(1e-12 * max(abs(low), abs(high)), _LEAST):
        low, high = low - (abs(low) * 0.1 or 1.0), high + (abs(high) * 0.1 or 1.0)
    extra = (high - low) * room
    low, high = low - extra, high + extra
    ticks = round_ticks(low, high, most)
    return Axis(low, high, tuple((tick, tick_text(tick, ticks)) for tick in ticks), title)


def amount_axis(most: float, title: str) -> Axis:
    """An axis from 0 to a little above `most`, of any size."""
    made = value_axis(0.0, most if most > 0 else 1.0, title, room=0.02)
    return Axis(0.0, made.high, tuple(tick for tick in made.ticks if tick[0] >= 0), title)


def round_ticks(low: float, high: float, most: int) -> list[float]:
    """Round numbers within the range, 1, 2 or 5 times a power of ten apart: about `most`, or else its two ends."""
    rough = (high - low) / most
    scale = 10.0 ** math.floor(math.log10(rough))
    step = next(scale * factor for factor in (1, 2, 5, 10) if scale * factor >= rough)
    ticks = [n * step for n in range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)]
    return ticks if len(ticks) >= 2 else [low, high]


def tick_text(value: float, ticks: Sequence[float]) -> str:
    """The value with as many decimals as are needed to distinguish the ticks."""
    gap = abs(ticks[1] - ticks[0])
    largest = max(abs(tick) for tick in ticks)
    if largest >= 1e6 or gap < 1e-4:
        return f"{value:.3g}" if gap > largest * 1e-2 else f"{value:.6g}"
    decimals = max(0, -math.floor(math.log10(gap) + 1e-9))
    return f"{value + 0.0:,.{decimals}f}"


def _powers(low: float, high: float) -> tuple[tuple[float, str], ...]:
    """Powers of ten, at most six; of a range with fewer than two of them, 1, 2 and 5 times these."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    apart = max(1, math.ceil((last - first) / 6))
    tens = [10.0**power for power in range(first, last + 1, apart)]
    ticks = [tick for tick in tens if low <= tick <= high]
    if len(ticks) < 2:
        ticks = [ten * part for ten in tens for part in (1, 2, 5) if low <= ten * part <= high]
    if len(ticks) < 2:
        ticks = [low, high]
    return tuple((tick, f"{tick:.3g}") for tick in ticks)
