"""Points of a space as rows of arrays, so that a thousand of them are handled at once.

A point is a row of *places*: one number from 0 to 1 for each parameter, in the middle of the part that its value has if
the values can be counted, and 0.5 for a parameter that is not there. Models see its *coordinates*, where the distance
of two points is: one column for a parameter of numbers, one for each value of a choice without an order.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Final

import numpy as np
from numpy.typing import NDArray

from muster.tune.space import Parameter, Params, Space, Value, is_there

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]
_MIDDLE: Final = 0.5  # of a parameter that is not there


class Cube:
    def __init__(self, space: Space) -> None:
        self.space = space

    @property
    def width(self) -> int:
        """Parameters: the places of a point."""
        return len(self.space.parameters)

    @cached_property
    def owner(self) -> NDArray[np.intp]:
        """The parameter of each coordinate."""
        return np.repeat(np.arange(self.width), [one.width for one in self.space.parameters])

    @cached_property
    def parts(self) -> Array:
        """The width of the part of each parameter's values, if they can be counted; else 0."""
        found = [one.values for one in self.space.parameters]
        return np.array([1 / len(values) if values is not None else 0.0 for values in found])

    @cached_property
    def unordered(self) -> Mask:
        return np.array([one.kind == "choice" and not one.ordered for one in self.space.parameters])

    def place(self, params: Params) -> Array:
        """The places of one point of the space."""
        pairs = [(one, params.get(one.name)) for one in self.space.parameters]
        return np.array([_MIDDLE if value is None else one.place(value) for one, value in pairs])

    def fitted(self, raw: Array) -> tuple[Array, Mask]:
        """Places of points of the space from any numbers from 0 to 1, and which parameters are there. (n, width)"""
        columns = [_fit(one, raw[:, index]) for index, one in enumerate(self.space.parameters)]
        places = np.stack(columns, axis=1) if columns else raw.copy()
        there = np.ones(places.shape, dtype=bool)
        for index, one in enumerate(self.space.parameters):
            if one.when:
                there[:, index] = self._there(index, places, there)
        return np.where(there, places, _MIDDLE), there

    def coordinates(self, places: Array, there: Mask) -> Array:
        """(n, width of the space)"""
        columns: list[Array] = []
        for index, one in enumerate(self.space.parameters):
            columns += _coordinates(one, places[:, index], there[:, index])
        return np.stack(columns, axis=1) if columns else np.zeros((len(places), 0))

    def nearest(self, coordinates: Array) -> Array:
        """The places of the point that is nearest to these coordinates of one."""
        starts = np.cumsum([0, *(one.width for one in self.space.parameters)])
        pairs = zip(self.space.parameters, starts[:-1], strict=True)
        return np.array([_nearest(one, coordinates[start : start + one.width]) for one, start in pairs])

    def point(self, places: Array) -> dict[str, Value]:
        return self.space.at(places.tolist())

    def _there(self, index: int, places: Array, there: Mask) -> Mask:
        """A condition is computed once for each combination of the values that it reads."""
        parameter = self.space.parameters[index]
        assert parameter.condition is not None
        names = [one.name for one in self.space.parameters[:index]]
        read = [names.index(name) for name in sorted(parameter.condition.names) if name in names]
        seen = np.where(there[:, read], places[:, read], -1.0)
        kinds, kind_of = np.unique(seen, axis=0, return_inverse=True)
        known = [self.space.parameters[one] for one in read]
        holds = [is_there(parameter, _values(known, row)) for row in kinds]
        return np.array(holds, dtype=bool)[kind_of.reshape(-1)]


def _values(parameters: Sequence[Parameter], places: Array) -> dict[str, Value]:
    return {one.name: one.at(float(place)) for one, place in zip(parameters, places, strict=True) if place >= 0}


def _fit(parameter: Parameter, raw: Array) -> Array:
    """`Parameter.place` of `Parameter.at`, of a column."""
    raw = np.clip(raw, 0.0, 1.0)
    if parameter.values is not None and (parameter.kind == "choice" or not parameter.log):
        count = len(parameter.values)
        return (np.minimum(np.floor(raw * count), count - 1) + 0.5) / count
    if parameter.kind == "float" and parameter.step is None:
        return raw
    low, high = _ends(parameter)
    step = parameter.step or 1.0
    value = low * (high / low) ** raw if parameter.log else low + raw * (high - low)
    value = np.clip(parameter.low + np.round((value - parameter.low) / step) * step, parameter.low, parameter.high)
    place = np.log(value / low) / np.log(high / low) if parameter.log else (value - low) / (high - low)
    return np.asarray(np.clip(place, 0.0, 1.0))


def _coordinates(parameter: Parameter, place: Array, there: Mask) -> list[Array]:
    """Its columns of `Space.coordinates`."""
    if parameter.width > 1:
        index = np.minimum((place * parameter.width).astype(int), parameter.width - 1)
        return [np.where(there, (index == one) * np.sqrt(0.5), _MIDDLE) for one in range(parameter.width)]
    if parameter.values is not None and (parameter.kind == "choice" or not parameter.log):
        count = len(parameter.values)
        column = (place * count - 0.5) / max(count - 1, 1)
    elif parameter.kind == "float" and parameter.step is None:
        column = place
    else:
        low, high = _ends(parameter)
        value = low * (high / low) ** place if parameter.log else low + place * (high - low)
        top, bottom = parameter.high, parameter.low
        column = np.log(value / bottom) / np.log(top / bottom) if parameter.log else (value - bottom) / (top - bottom)
    return [np.where(there, column, _MIDDLE)]


def _nearest(parameter: Parameter, coordinates: Array) -> float:
    """The place of its value."""
    if parameter.width > 1:
        return (int(np.argmax(coordinates)) + 0.5) / parameter.width
    at = min(max(float(coordinates[0]), 0.0), 1.0)
    if parameter.values is not None and (parameter.kind == "choice" or not parameter.log):
        return (round(at * (len(parameter.values) - 1)) + 0.5) / len(parameter.values)
    low, high = parameter.low, parameter.high
    value = low * (high / low) ** at if parameter.log else low + at * (high - low)
    return min(max(parameter.place(value), 0.0), 1.0)


def _ends(parameter: Parameter) -> tuple[float, float]:
    """Of whole numbers half a step more, so that the ends are as likely as the others."""
    slack = 0.5 if parameter.kind == "int" else 0.0
    return parameter.low - slack, parameter.high + slack
