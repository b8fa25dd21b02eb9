"""Every point of a grid, one after another."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any, ClassVar

from muster.tune.plugin import Option, Suggestion
from muster.tune.records import Key, Records
from muster.tune.space import MOST_POINTS, Parameter, Space, Value, key_of
from muster.tune.spec import StudySpec
from muster.tune.view import StudyView


class GridSearch:
    """A grid is gone through once for each replicate. A point that the platform lost is tried again."""

    NAME: ClassVar[str] = "grid"
    DESCRIPTION: ClassVar[str] = "tries every combination; numbers without a step at some of their values"
    OPTIONS: ClassVar[tuple[Option, ...]] = (
        Option("levels", "integer", 5, "values of a number that has no step, its ends included", least=2, most=1000),
    )
    OBJECTIVES: ClassVar[int] = 100

    def __init__(self, spec: StudySpec, options: Mapping[str, Any]) -> None:
        self._spec = spec
        self._levels = int(options["levels"])
        self._records = Records(spec)

    def ask(self, view: StudyView, number: int) -> Suggestion | None:
        self._records.follow(view)
        tried = self._records.tried
        for times in range(self._spec.replicates):
            for key, params in self._points:
                if tried.get(key, 0) <= times:
                    return Suggestion(params, self.NAME)
        return None

    @cached_property
    def _points(self) -> list[tuple[Key, dict[str, Value]]]:
        """The last parameter changes first."""
        grid = Space(tuple(_levelled(one, self._levels) for one in self._spec.space.parameters))
        found: list[tuple[Key, dict[str, Value]]] = []
        for params in grid.points():
            found.append((key_of(params), params))
            if len(found) == MOST_POINTS:
                break
        return found


def _levelled(parameter: Parameter, levels: int) -> Parameter:
    """With values that can be listed: of whole numbers at most as many as there are."""
    if parameter.values is not None and not (parameter.kind == "int" and parameter.log):
        return parameter
    places = [index / (levels - 1) for index in range(levels)]
    values = dict.fromkeys(parameter.at(place) for place in places)
    return replace(parameter, kind="choice", choices=tuple(values))
