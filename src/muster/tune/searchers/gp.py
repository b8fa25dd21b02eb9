"""A Gaussian process over the space: the next point is where it expects the most improvement."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Final

from muster.tune.model.suggest import ModelSearch, Settings
from muster.tune.plugin import Option, Suggestion
from muster.tune.spec import StudySpec
from muster.tune.view import StudyView

_THRIFT: Final = (
    "power of 1 + a trial's time or money, as a multiple of the usual, that its expected improvement is divided by; "
    "0: cost does not matter"
)


class GaussianSearch:
    NAME: ClassVar[str] = "gp"
    DESCRIPTION: ClassVar[str] = (
        "models the objective by a Gaussian process and goes where it expects the most improvement"
    )
    OPTIONS: ClassVar[tuple[Option, ...]] = (
        Option("start", "integer", 8, "points that are spread evenly before the model is asked", least=1, most=1000),
        Option("thrift", "number", 0.0, _THRIFT, 0, 2),
    )  # fmt: skip
    OBJECTIVES: ClassVar[int] = 4

    def __init__(self, spec: StudySpec, options: Mapping[str, Any]) -> None:
        self._search = ModelSearch(spec, Settings(int(options["start"]), float(options["thrift"])), self.NAME)

    def ask(self, view: StudyView, number: int) -> Suggestion | None:
        return self._search.ask(view, number)
