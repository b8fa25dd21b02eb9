"""The searcher of a study that names none."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Final

from muster.tune.model.suggest import ModelSearch, Settings
from muster.tune.plugin import Option, Suggestion
from muster.tune.spec import StudySpec
from muster.tune.view import StudyView

SETTINGS: Final = Settings(start=8, thrift=1.0)


class AutoSearch:
    NAME: ClassVar[str] = "auto"
    DESCRIPTION: ClassVar[str] = "as gp, and weighs the expected improvement of a trial against its time or money"
    OPTIONS: ClassVar[tuple[Option, ...]] = ()
    OBJECTIVES: ClassVar[int] = 100

    def __init__(self, spec: StudySpec, options: Mapping[str, Any]) -> None:
        self._search = ModelSearch(spec, SETTINGS, self.NAME)

    def ask(self, view: StudyView, number: int) -> Suggestion | None:
        return self._search.ask(view, number)
