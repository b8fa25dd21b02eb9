"""Every trial runs to its end."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from muster.core.entities.study import Trial
from muster.tune.plugin import Option
from muster.tune.spec import By, StudySpec
from muster.tune.stopping.base import GO, Promotion, Verdict
from muster.tune.view import StudyView


class Fifo:
    NAME: ClassVar[str] = "fifo"
    DESCRIPTION: ClassVar[str] = "every trial runs to its end"
    OPTIONS: ClassVar[tuple[Option, ...]] = ()
    ANY_ORDER: ClassVar[bool] = True
    by: By = "report"

    def __init__(self, spec: StudySpec, options: Mapping[str, Any]) -> None:
        """Nothing to remember."""

    def next_level(self, trial: Trial) -> float | None:
        return None

    def verdict(self, view: StudyView, trial: Trial) -> Verdict:
        return GO

    def promote(self, view: StudyView) -> Promotion | None:
        return None

    def bracket(self, view: StudyView, number: int) -> int:
        return 0

    def may_ask(self, view: StudyView) -> bool:
        return True

    def rung_of(self, trial: Trial) -> int:
        return 0
