"""Points of the Sobol sequence, which fill the space evenly."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from muster.tune.plugin import Option, Suggestion
from muster.tune.records import Records
from muster.tune.searchers.random import generator
from muster.tune.sequence import sobol_point
from muster.tune.spec import StudySpec
from muster.tune.untried import drawn
from muster.tune.view import StudyView


class SobolSearch:
    NAME: ClassVar[str] = "sobol"
    DESCRIPTION: ClassVar[str] = "fills the space evenly, by a Sobol sequence that the seed shifts"
    OPTIONS: ClassVar[tuple[Option, ...]] = ()
    OBJECTIVES: ClassVar[int] = 100

    def __init__(self, spec: StudySpec, options: Mapping[str, Any]) -> None:
        self._records = Records(spec)

    def ask(self, view: StudyView, number: int) -> Suggestion | None:
        self._records.follow(view)
        cube = self._records.cube
        params = cube.point(sobol_point(cube.width, number, view.seed))
        if self._records.may_try(params):
            return Suggestion(params, self.NAME)
        if (other := drawn(self._records, generator(view.seed, number))) is None:
            return None
        return Suggestion(other, self.NAME, "the point of the sequence was tried already: drawn at random")
