"""Optuna's NSGA-II: children of the best trials, of several objectives those that no other trial beats in all."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

from muster.tune.plugin import Option, Suggestion
from muster.tune.spec import StudySpec
from muster.tune.view import StudyView

if TYPE_CHECKING:
    from muster.tune.searchers.optuna_trials import OptunaSearch


class EvolutionSearch:
    """All trials so far are one generation, and the next child is of the best of them: nothing waits for a generation
    to be complete."""

    NAME: ClassVar[str] = "evolution"
    DESCRIPTION: ClassVar[str] = "mixes and mutates the parameters of the best trials so far (NSGA-II of Optuna)"
    OPTIONS: ClassVar[tuple[Option, ...]] = (
        Option("population", "integer", 24, "best trials that are mixed; as many are drawn at random first", 4, 1000),
        Option("mutation", "number", 0.0, "probability that a parameter is drawn anew; 0: one of each point", 0, 1),
    )  # fmt: skip
    OBJECTIVES: ClassVar[int] = 100

    def __init__(self, spec: StudySpec, options: Mapping[str, Any]) -> None:
        self._spec, self._options = spec, options

    def ask(self, view: StudyView, number: int) -> Suggestion | None:
        return self._search.ask(view, number)

    @cached_property
    def _search(self) -> OptunaSearch:
        from optuna.samplers import BaseSampler, NSGAIISampler  # noqa: PLC0415  (takes 0.3 s)

        from muster.tune.searchers.optuna_trials import OptunaSearch  # noqa: PLC0415

        population, mutation = int(self._options["population"]), float(self._options["mutation"]) or None

        def sampler(seed: int) -> BaseSampler:
            return NSGAIISampler(population_size=population, mutation_prob=mutation, seed=seed)

        return OptunaSearch(self._spec, self.NAME, sampler, {"NSGAIISampler:generation": 0})
