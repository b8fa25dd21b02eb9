"""Optuna's tree-structured Parzen estimator."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

from muster.tune.plugin import Option, Suggestion
from muster.tune.spec import StudySpec
from muster.tune.view import StudyView

if TYPE_CHECKING:
    from muster.tune.searchers.optuna_trials import OptunaSearch


class TpeSearch:
    NAME: ClassVar[str] = "tpe"
    DESCRIPTION: ClassVar[str] = (
        "takes values that are frequent among good trials and rare among others (TPE of Optuna, with its defaults); "
        "of many trials it sees the best and a sample, 1,000 in all"
    )
    OPTIONS: ClassVar[tuple[Option, ...]] = (
        Option("start", "integer", 10, "trials with values before which points are drawn at random", 1, 1000),
        Option("candidates", "integer", 24, "points that are drawn, of which the best is taken", least=1, most=10_000),
    )  # fmt: skip
    OBJECTIVES: ClassVar[int] = 100

    def __init__(self, spec: StudySpec, options: Mapping[str, Any]) -> None:
        self._spec, self._options = spec, options

    def ask(self, view: StudyView, number: int) -> Suggestion | None:
        return self._search.ask(view, number)

    @cached_property
    def _search(self) -> OptunaSearch:
        from optuna.samplers import BaseSampler, TPESampler  # noqa: PLC0415  (takes 0.3 s)

        from muster.tune.searchers.optuna_trials import OptunaSearch  # noqa: PLC0415

        start, candidates = int(self._options["start"]), int(self._options["candidates"])

        def sampler(seed: int) -> BaseSampler:
            return TPESampler(n_startup_trials=start, n_ei_candidates=candidates, seed=seed)

        return OptunaSearch(self._spec, self.NAME, sampler, {})
