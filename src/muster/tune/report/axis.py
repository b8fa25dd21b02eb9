"""The axis of a parameter: where each of its values is drawn, from 0 to 1, and the parts that values are counted in."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

from muster.tune.space import Parameter, Value

BINS: Final = 12  # parts of an axis of numbers; one with fewer values has a part for each
MOST_CHOICES: Final = 40  # parts of an axis of choices; of more, neighbours share a part
_MOST: Final = 1e100  # values beyond it, that are not in the space, are not drawn


@dataclass(frozen=True)
class Axis:
    """Choices, and numbers of at most `BINS` values, are evenly spaced; other numbers are on a linear or a logarithmic
    scale from `low` to `high`."""

    parameter: Parameter

    @cached_property
    def listed(self) -> tuple[Value, ...] | None:
        values = self.parameter.values
        return values if values is not None and (self.parameter.kind == "choice" or len(values) <= BINS) else None

    @property
    def bins(self) -> int:
        return BINS if self.listed is None else min(len(self.listed), MOST_CHOICES)

    def place(self, value: object) -> float | None:
        """None of what can't be drawn on it, such as 0 where the scale is logarithmic."""
        if not self.parameter.fits(value):
            return None
        assert isinstance(value, bool | int | float | str)
        if self.listed is not None:
            return (self._index(self.listed, value) + 0.5) / len(self.listed)
        assert isinstance(value, int | float)
        low, high = self.parameter.low, self.parameter.high
        if high <= low:
            return 0.5
        if self.parameter.log:
            return _within(math.log(value / low) / math.log(high / low)) if value > 0 else None
        return _within((value - low) / (high - low))

    def bin(self, value: object) -> int | None:
        place = self.place(value)
        if place is None or self.listed is None:
            return None if place is None else min(int(place * self.bins), self.bins - 1)
        return int(place * len(self.listed)) * self.bins // len(self.listed)

    def label(self, number: int) -> str:
        """The value of a part, or the first and the last."""
        if self.listed is None:
            return f"{words(self._at(number / self.bins))} to {words(self._at((number + 1) / self.bins))}"
        size = len(self.listed)  # the part of an index is `index * bins // size`, rounded down
        first, after = (-(-part * size // self.bins) for part in (number, number + 1))
        one, last = words(self.listed[first]), words(self.listed[after - 1])
        return one if after - first == 1 else f"{one} … {last}"

    def _at(self, place: float) -> Value:
        low, high = self.parameter.low, self.parameter.high
        raw = low * (high / low) ** place if self.parameter.log else low + place * (high - low)
        return round(raw) if self.parameter.kind == "int" else float(raw)

    def _index(self, listed: tuple[Value, ...], value: Value) -> int:
        if self.parameter.kind == "choice":
            return next(at for at, one in enumerate(listed) if type(one) is type(value) and one == value)
        return min(range(len(listed)), key=lambda at: abs(float(listed[at]) - float(value)))


def axis_of(parameter: Parameter, tried: Iterable[object]) -> Axis:
    """With room for values that are not in the space: somebody asked for them, or the space was another one."""
    outside = [one for one in tried if not parameter.fits(one)]
    if not outside:
        return Axis(parameter)
    if parameter.kind == "choice":
        found = {(type(one), one): one for one in outside if isinstance(one, bool | int | float | str)}
        return Axis(replace(parameter, choices=(*parameter.choices, *found.values())))
    numbers = [float(one) for one in outside if isinstance(one, int | float) and not isinstance(one, bool)]
    numbers = [one for one in numbers if abs(one) <= _MOST and (one >= 1 / _MOST or not parameter.log)]
    low, high = min([parameter.low, *numbers]), max([parameter.high, *numbers])
    whole = parameter.kind == "int" and all(one == int(one) for one in numbers)
    return Axis(replace(parameter, low=low, high=high, kind="int" if whole else "float", step=None))


def words(value: Value) -> str:
    """As a study file has it; numbers with at most four digits."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"{value:.4g}" if isinstance(value, float) else f"{value}"


def _within(place: float) -> float:
    return min(max(place, 0.0), 1.0)
