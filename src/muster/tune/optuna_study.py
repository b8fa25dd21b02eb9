"""A study's trials as an Optuna study in memory, for Optuna's plots, samplers and dashboard.

Trials may be no points of the space any more, because it was changed: the distribution of a parameter is that of the
space, widened to the values that trials had.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import fields
from datetime import datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Final

from muster.core.entities.study import Trial
from muster.tune.space import Parameter, Value
from muster.tune.view import StudyView

if TYPE_CHECKING:
    import optuna
    from optuna.distributions import BaseDistribution
    from optuna.trial import FrozenTrial

ATTRS: Final = ("job", "outcome", "origin", "by", "of", "seed", "bracket", "cost", "seconds", "note")
_DEFAULTS: Final = {one.name: one.default for one in fields(Trial)}
_CONSTRAINTS: Final = "constraints"  # of a trial's system attributes, where Optuna's samplers look for them


def to_optuna(view: StudyView) -> optuna.Study:
    """The study in Optuna's memory, under its name; trial n is trial n. `optuna.copy_study` copies it elsewhere."""
    import optuna  # noqa: PLC0415

    directions = [one.direction for one in view.spec.objectives]
    storage = optuna.storages.InMemoryStorage()
    study = optuna.create_study(storage=storage, study_name=view.spec.name, directions=directions)
    # As `set_metric_names` does, which warns that it is experimental.
    names = [one.metric for one in view.spec.objectives]
    storage.set_study_system_attr(study._study_id, optuna.study.study._SYSTEM_ATTR_METRIC_NAMES, names)
    study.set_user_attr("muster.study", view.id)
    study.add_trials(to_trials(view))
    return study


def to_trials(view: StudyView) -> list[FrozenTrial]:
    """By number. One that is not over is `RUNNING`, one that was stopped early `PRUNED`."""
    given: dict[str, list[Value]] = {}
    for trial in view.trials.values():
        for name, value in trial.params.items():
            given.setdefault(name, []).append(value)
    space = view.spec.space.by_name
    as_text = {name for name, values in given.items() if _mixed([*values, *_choices(space.get(name))])}
    distributions = {
        name: _texts([*_choices(space.get(name)), *values])
        if name in as_text
        else _distribution(space.get(name), values)
        for name, values in given.items()
    }
    return [_frozen(view, view.trials[number], distributions, as_text) for number in sorted(view.trials)]


def _frozen(
    view: StudyView, trial: Trial, distributions: Mapping[str, BaseDistribution], as_text: Container[str]
) -> FrozenTrial:
    from optuna.trial import FrozenTrial, TrialState  # noqa: PLC0415

    state, values = TrialState.RUNNING, None
    if trial.phase == "ended":
        if trial.outcome == "complete" and trial.values is not None:
            state, values = TrialState.COMPLETE, trial.values
        elif trial.outcome == "stopped":
            state, values = TrialState.PRUNED, trial.latest
        else:
            state = TrialState.FAIL
    constraints = [1.0 if one in trial.violated else 0.0 for one in view.spec.constraints]
    ended = datetime.fromtimestamp(trial.ended_at or trial.created_at) if trial.phase == "ended" else None
    return FrozenTrial(
        number=trial.number,
        trial_id=trial.number,
        state=state,
        value=None,
        values=list(values) if values is not None else None,
        datetime_start=datetime.fromtimestamp(trial.created_at),
        datetime_complete=ended,
        params={name: repr(value) if name in as_text else value for name, value in trial.params.items()},
        distributions={name: distributions[name] for name in trial.params},
        user_attrs={f"muster.{name}": value for name in ATTRS if (value := getattr(trial, name)) != _DEFAULTS[name]},
        system_attrs={_CONSTRAINTS: constraints} if constraints and state == TrialState.COMPLETE else {},
        intermediate_values={one.step: one.values[0] for one in trial.rungs},
    )


def _choices(parameter: Parameter | None) -> Sequence[Value]:
    return parameter.choices if parameter is not None else ()


def _mixed(values: Sequence[Value]) -> bool:
    """Whether two of them are different here and equal for Optuna, as 1 and true are."""
    flags = {one for one in values if isinstance(one, bool)}
    return bool(flags & {one for one in values if not isinstance(one, bool)})


def _texts(values: Sequence[Value]) -> BaseDistribution:
    from optuna.distributions import CategoricalDistribution  # noqa: PLC0415

    return CategoricalDistribution(list(dict.fromkeys(map(repr, values))))


def _distribution(parameter: Parameter | None, values: Sequence[Value]) -> BaseDistribution:
    """Of the space if the values are in it; else as near to it as Optuna allows."""
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution  # noqa: PLC0415

    numbers = [one for one in values if isinstance(one, int | float) and not isinstance(one, bool)]
    if len(numbers) < len(values) or _choices(parameter):
        return CategoricalDistribution(list(dict.fromkeys([*_choices(parameter), *values])))
    low, high = float(min(numbers)), float(max(numbers))
    if parameter is not None:
        low, high = min(low, parameter.low), max(high, parameter.high)
    log = parameter is not None and parameter.log and low > 0
    step = parameter.step if parameter is not None and not log else None
    last = _last(low, high, step) if step is not None else high
    if step is not None and all(_on_grid(one, low, step) and one <= last for one in numbers):
        high = last
    else:
        step = None
    if all(isinstance(one, int) for one in numbers) and (parameter is None or parameter.kind == "int"):
        return IntDistribution(int(low), int(high), log=log, step=int(step or 1))
    return FloatDistribution(low, high, log=log, step=step)


def _last(low: float, high: float, step: float) -> float:
    """The last value of a grid, by decimal digits as Optuna computes it: it warns of a range that has a rest."""
    first, width = Decimal(str(low)), Decimal(str(step))
    return float(first + (Decimal(str(high)) - first) // width * width)


def _on_grid(value: float, low: float, step: float) -> bool:
    place = (value - low) / step
    return abs(place - round(place)) < 1e-8
