"""Trials of a study as Optuna's samplers see them. It imports Optuna: searchers import it when they are first asked.

Samplers keep state of the trials that they suggested. Here every suggestion has a new one, with a seed of its own, over
a storage in memory that has the trials in the order of their numbers, so that it depends on nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import islice
from typing import Any, Final

import numpy as np
import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.samplers import BaseSampler
from optuna.storages import InMemoryStorage
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState

from muster.tune.evidence import Evidence, chosen, evidence_of, filled, params_of
from muster.tune.plugin import Suggestion
from muster.tune.records import Records
from muster.tune.space import Parameter, Params, Space, Value, is_there
from muster.tune.spec import StudySpec
from muster.tune.untried import drawn
from muster.tune.view import StudyView

MakeSampler = Callable[[int], BaseSampler]
MOST: Final = 1_000  # ended trials that a sampler sees: the best, and of the others a sample
_TRIES: Final = 16
_FIRST: Final = 1_000_000  # lower numbers are of trials that are asked for now, and of points from elsewhere
_WHEN: Final = datetime(2000, 1, 1, tzinfo=UTC)  # samplers don't read it


class OptunaSearch:
    """Made for one study; it keeps what it made of trials until their values change. `make_sampler` takes a seed;
    `marks` are attributes of trials that the sampler reads."""

    def __init__(self, spec: StudySpec, name: str, make_sampler: MakeSampler, marks: Mapping[str, Any]) -> None:
        self._spec, self._name, self._make_sampler, self._marks = spec, name, make_sampler, marks
        self._records = Records(spec)
        self._distributions = {one.name: _distribution(one) for one in spec.space.parameters}
        self._made: dict[int, tuple[tuple[float, ...], bool, FrozenTrial]] = {}

    def ask(self, view: StudyView, number: int) -> Suggestion | None:
        evidence = chosen(evidence_of(self._records, view), MOST)
        random = np.random.default_rng((view.seed, number))
        sampler = self._make_sampler(int(random.integers(2**31)))
        trials = [*self._ended(view, evidence), *self._running(view, evidence)]
        objectives = len(self._spec.objectives)
        for params in islice(suggestions(self._spec.space, objectives, trials, sampler), _TRIES):
            if self._records.may_try(params):
                return Suggestion(params, self._name)
        if (other := drawn(self._records, random)) is None:
            return None
        return Suggestion(other, self._name, f"{_TRIES} points in a row were tried already: drawn at random")

    def _ended(self, view: StudyView, evidence: Evidence) -> list[FrozenTrial]:
        """In the order of their numbers, those that were made elsewhere first."""
        columns = [filled(column) for column in evidence.losses.T]
        losses = np.stack(columns, axis=1).tolist()
        rows = zip(evidence.numbers.tolist(), losses, evidence.refused.tolist(), strict=True)
        return [self._ended_trial(view, number, tuple(values), refused) for number, values, refused in rows]

    def _ended_trial(self, view: StudyView, number: int, losses: tuple[float, ...], refused: bool) -> FrozenTrial:
        known = self._made.get(number)
        if known is None or known[:2] != (losses, refused):
            marks = {**self._marks, "constraints": [1.0 if refused else 0.0]}
            made = self._frozen(number, params_of(view, number), losses, marks)
            self._made[number] = known = (losses, refused, made)
        return known[2]

    def _running(self, view: StudyView, evidence: Evidence) -> list[FrozenTrial]:
        waiting = self._records.waiting(evidence.numbers)
        return [self._frozen(number, view.trials[number].params, None, {}) for number in waiting.tolist()]

    def _frozen(
        self, number: int, params: Params, losses: tuple[float, ...] | None, marks: dict[str, Any]
    ) -> FrozenTrial:
        by_name, over = self._spec.space.by_name, losses is not None
        return FrozenTrial(
            number=_FIRST + number, trial_id=_FIRST + number, value=None, values=losses,
            state=TrialState.COMPLETE if over else TrialState.RUNNING,
            datetime_start=_WHEN, datetime_complete=_WHEN if over else None,
            params={name: _inner(by_name[name], value) for name, value in params.items()},
            distributions={name: self._distributions[name] for name in params},
            user_attrs={}, system_attrs=marks, intermediate_values={},
        )  # fmt: skip


def suggestions(
    space: Space, objectives: int, trials: Sequence[FrozenTrial], sampler: BaseSampler
) -> Iterator[dict[str, Value]]:
    """Points, one after another: each counts as running for those after it."""
    study = optuna.Study("study", _storage(trials, objectives), sampler=sampler)
    while True:
        trial = study.ask()
        chosen: dict[str, Value] = {}
        for one in space.parameters:
            if is_there(one, chosen):
                chosen[one.name] = _asked(one, trial)
        yield chosen


class _Storage(InMemoryStorage):
    """A storage with trials that it is given; only those that are asked for now are its own."""

    def __init__(self, given: Sequence[FrozenTrial]) -> None:
        super().__init__()
        self._given = given

    def get_all_trials(self, study_id: int, deepcopy: bool = True, states: Any = None) -> list[FrozenTrial]:
        given = [one for one in self._given if states is None or one.state in states]
        return given + super().get_all_trials(study_id, deepcopy, states)


def _storage(trials: Sequence[FrozenTrial], objectives: int) -> _Storage:
    """With one study, whose beginning Optuna would write to the error output each time."""
    made, level = _Storage(trials), optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    try:
        made.create_new_study([StudyDirection.MINIMIZE] * objectives, "study")
    finally:
        optuna.logging.set_verbosity(level)
    return made


def _distribution(parameter: Parameter) -> BaseDistribution:
    """Of its values by their indices, if they can be counted; of others by their place from 0 to 1, where a logarithm
    is a straight line."""
    if parameter.kind == "choice" and not parameter.ordered:
        return CategoricalDistribution(tuple(range(len(parameter.choices))))
    if parameter.values is not None and not parameter.log:
        return IntDistribution(0, len(parameter.values) - 1)
    return FloatDistribution(0.0, 1.0)


def _inner(parameter: Parameter, value: Value) -> int | float:
    place = parameter.place(value)
    if parameter.values is not None and (parameter.kind == "choice" or not parameter.log):
        return int(place * len(parameter.values))
    return min(max(place, 0.0), 1.0)


def _asked(parameter: Parameter, trial: optuna.Trial) -> Value:
    name = parameter.name
    if parameter.kind == "choice" and not parameter.ordered:
        return parameter.choices[int(trial.suggest_categorical(name, tuple(range(len(parameter.choices)))))]
    if parameter.values is not None and not parameter.log:
        return parameter.values[trial.suggest_int(name, 0, len(parameter.values) - 1)]
    return parameter.at(trial.suggest_float(name, 0.0, 1.0))
