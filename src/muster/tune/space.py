"""The space of a study: its parameters, which of them are there, and their place in the unit cube.

A parameter with a condition is there if the condition holds for the parameters before it. Searchers that need numbers
use the unit cube: a parameter of many values is one coordinate from 0 to 1 (a logarithm's, if it is `log`), a choice
without an order one coordinate for each of its values.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any, Final, Literal

from muster.tune.expression import Expression, parse_expression

Value = bool | int | float | str
Params = Mapping[str, Value]
Kind = Literal["float", "int", "choice"]
MOST_POINTS: Final = 100_000  # of a grid that is counted


@dataclass(frozen=True)
class Parameter:
    """`low` to `high` of numbers, both included; `choices` of the others. `ordered`: choices that are numbers."""

    name: str
    kind: Kind
    low: float = 0.0
    high: float = 0.0
    log: bool = False
    step: float | None = None  # of whole numbers 1 unless given; None of a float: any value
    choices: tuple[Value, ...] = ()
    when: str = ""

    @cached_property
    def condition(self) -> Expression | None:
        return parse_expression(self.when) if self.when else None

    @cached_property
    def ordered(self) -> bool:
        """Whether its choices are numbers in their order, so that neighbours are alike."""
        numbers = [one for one in self.choices if isinstance(one, int | float) and not isinstance(one, bool)]
        return len(numbers) == len(self.choices) > 1 and list(numbers) == sorted(numbers)

    @cached_property
    def values(self) -> tuple[Value, ...] | None:
        """All of its values, in their order; None if there are more than can be listed."""
        if self.kind == "choice":
            return self.choices
        if self.step is None:
            return (self.low,) if self.low == self.high else None
        count = math.floor((self.high - self.low) / self.step + 1e-9) + 1
        if count > MOST_POINTS:
            return None
        return tuple(self._number(self.low + index * self.step) for index in range(count))

    @property
    def width(self) -> int:
        """Its coordinates in the unit cube."""
        return len(self.choices) if self.kind == "choice" and not self.ordered else 1

    def at(self, place: float) -> Value:
        """The value at a place from 0 to 1: equal parts of it for each value, if they can be counted."""
        place = min(max(place, 0.0), 1.0)
        if self.kind == "choice":
            return self.choices[min(int(place * len(self.choices)), len(self.choices) - 1)]
        if self.values is not None and not self.log:
            return self.values[min(int(place * len(self.values)), len(self.values) - 1)]
        low, high = self.low, self.high
        if self.kind == "int":  # so that the ends are as likely as the others
            low, high = low - 0.5, high + 0.5
        raw = math.exp(math.log(low) + place * math.log(high / low)) if self.log else low + place * (high - low)
        return self._fitted(raw)

    def place(self, value: Value) -> float:
        """Inverse of `at`: the middle of the part of a value that can be counted."""
        if self.kind == "choice":
            return (self.choices.index(value) + 0.5) / len(self.choices)
        assert isinstance(value, int | float)
        if self.values is not None and not self.log:
            index = round((value - self.low) / self.step) if self.step else 0
            return (index + 0.5) / len(self.values)
        low, high = (self.low - 0.5, self.high + 0.5) if self.kind == "int" else (self.low, self.high)
        if self.log:
            return math.log(value / low) / math.log(high / low) if high > low else 0.5
        return (value - low) / (high - low) if high > low else 0.5

    def coordinates(self, value: Value) -> list[float]:
        """From 0 to 1. Choices without an order are as far from each other as the ends of a number."""
        if self.kind == "choice" and not self.ordered:
            return [math.sqrt(0.5) if one == value else 0.0 for one in self.choices]
        if self.kind == "choice":
            return [self.choices.index(value) / max(len(self.choices) - 1, 1)]
        assert isinstance(value, int | float)
        if self.high == self.low:
            return [0.0]
        if self.log:
            return [math.log(value / self.low) / math.log(self.high / self.low)]
        return [(value - self.low) / (self.high - self.low)]

    def fits(self, value: object) -> bool:
        """Whether the parameter can have this value."""
        if self.kind == "choice":
            return any(type(one) is type(value) and one == value for one in self.choices)
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            return False
        if self.kind == "int" and value != int(value):
            return False
        slack = 1e-9 * max(abs(self.low), abs(self.high))
        return self.low - slack <= value <= self.high + slack

    def _fitted(self, raw: float) -> Value:
        if self.step is not None:
            raw = self.low + round((raw - self.low) / self.step) * self.step
        return self._number(raw, self.low, self.high)

    def _number(self, raw: float, low: float = -math.inf, high: float = math.inf) -> Value:
        """With twelve digits, and within the bounds, which may have more."""
        value = round(raw) if self.kind == "int" else float(f"{raw:.12g}")
        bounded = min(max(value, low), high)
        return round(bounded) if self.kind == "int" else bounded


@dataclass(frozen=True)
class Space:
    parameters: tuple[Parameter, ...]

    @cached_property
    def by_name(self) -> Mapping[str, Parameter]:
        return {one.name: one for one in self.parameters}

    @cached_property
    def conditional(self) -> bool:
        return any(one.when for one in self.parameters)

    @cached_property
    def width(self) -> int:
        """Coordinates of the unit cube."""
        return sum(one.width for one in self.parameters)

    @cached_property
    def size(self) -> int | None:
        """How many points there are; None if they can't be counted, or are more than `MOST_POINTS`."""
        total = 1
        for one in self.parameters:
            if one.values is None:
                return None
            total *= len(one.values)
            if total > MOST_POINTS and not self.conditional:
                return None
            if total > 100 * MOST_POINTS:
                return None
        if not self.conditional:
            return total
        count = 0
        for count, _ in enumerate(self.points(), start=1):
            if count > MOST_POINTS:
                return None
        return count

    def points(self) -> Iterator[dict[str, Value]]:
        """All points, if every parameter's values can be listed; the last parameter changes first."""

        def below(index: int, chosen: dict[str, Value]) -> Iterator[dict[str, Value]]:
            if index == len(self.parameters):
                yield dict(chosen)
                return
            parameter = self.parameters[index]
            if not is_there(parameter, chosen):
                yield from below(index + 1, chosen)
                return
            for value in parameter.values or ():
                yield from below(index + 1, {**chosen, parameter.name: value})

        yield from below(0, {})

    def at(self, places: Sequence[float]) -> dict[str, Value]:
        """The point whose parameters have these places, one for each parameter, whether it is there or not."""
        chosen: dict[str, Value] = {}
        for parameter, place in zip(self.parameters, places, strict=True):
            if is_there(parameter, chosen):
                chosen[parameter.name] = parameter.at(place)
        return chosen

    def coordinates(self, params: Params) -> list[float]:
        """The point in the unit cube; a parameter that is not there is in the middle."""
        found: list[float] = []
        for one in self.parameters:
            found += one.coordinates(params[one.name]) if one.name in params else [0.5] * one.width
        return found

    def pruned(self, params: Params) -> dict[str, Value]:
        """Without the parameters that are not there, in the order of the space."""
        chosen: dict[str, Value] = {}
        for one in self.parameters:
            if one.name in params and is_there(one, chosen):
                chosen[one.name] = params[one.name]
        return chosen

    def fits(self, params: Params) -> bool:
        """Whether these are a point of the space."""
        kept = self.pruned(params)
        there: dict[str, Value] = {}
        for one in self.parameters:
            if is_there(one, there):
                if one.name not in kept or not one.fits(kept[one.name]):
                    return False
                there[one.name] = kept[one.name]
        return len(kept) == len(params)

    def to_doc(self) -> list[dict[str, Any]]:
        return [asdict(one) for one in self.parameters]

    @staticmethod
    def of(docs: Sequence[Mapping[str, Any]]) -> Space:
        return Space(tuple(Parameter(**{**doc, "choices": tuple(doc["choices"])}) for doc in docs))


def is_there(parameter: Parameter, chosen: Params) -> bool:
    """Whether its condition holds. A condition on a parameter that is not there does not."""
    condition = parameter.condition
    return condition is None or condition.holds(chosen) is True


def key_of(params: Params) -> tuple[tuple[str, str, Value], ...]:
    """The same for equal points alone; 1, 1.0 and true are not the same value."""
    return tuple(sorted((name, type(value).__name__, value) for name, value in params.items()))
