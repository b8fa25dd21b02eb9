"""What is different between two study files, in words, and what of a study that runs can't be changed."""

from __future__ import annotations

from typing import Any

from muster.core.errors import Invalid
from muster.core.money import format_amount
from muster.core.units import format_duration
from muster.tune.space import Parameter
from muster.tune.spec import Plugin, StudySpec


def changes_between(before: StudySpec, after: StudySpec, currency: str) -> list[str]:
    """Raises Invalid if another objective is named: its values could not be compared."""
    if before.objectives != after.objectives:
        raise Invalid(
            f"The objective of a study that has begun can't be changed: it is {_objectives(before)}, "
            f"and the file says {_objectives(after)}.",
            "Start a new study; `warm_start: runs where ...` can use the runs of this one.",
        )
    told = list(_space(before, after))
    pairs: list[tuple[str, Any, Any]] = [
        ("search", _plugins(before.search), _plugins(after.search)),
        ("stop", _plugins((before.stop,)), _plugins((after.stop,))),
        ("trials", before.trials, after.trials),
        ("parallel", before.parallel, after.parallel),
        ("cost", _amount(before.cost, currency), _amount(after.cost, currency)),
        ("until", _time(before.until), _time(after.until)),
        ("constraints", "; ".join(before.constraints), "; ".join(after.constraints)),
        ("confirm", _confirm(before), _confirm(after)),
        ("pools", ", ".join(before.pools), ", ".join(after.pools)),
        ("replicates", before.replicates, after.replicates),
        ("params", before.params_as, after.params_as),
        ("worth", _amount(before.worth, currency), _amount(after.worth, currency)),
        ("name", before.name, after.name),
    ]
    told += [f"{name}: {_shown(old)} → {_shown(new)}" for name, old, new in pairs if old != new]
    if before.job != after.job:
        told.append("job: another one; trials that run, or go on, keep theirs")
    return told


def _space(before: StudySpec, after: StudySpec) -> list[str]:
    old, new = before.space.by_name, after.space.by_name
    told = [f"space.{name}: added" for name in new if name not in old]
    told += [f"space.{name}: removed" for name in old if name not in new]
    told += [
        f"space.{name}: {_parameter(old[name])} → {_parameter(new[name])}"
        for name in new
        if name in old and old[name] != new[name]
    ]
    return told


def _parameter(one: Parameter) -> str:
    when = f" when {one.when}" if one.when else ""
    if one.kind == "choice":
        return f"[{', '.join(map(str, one.choices))}]{when}"
    step = f" by {one.step:g}" if one.step is not None and (one.kind == "float" or one.step != 1) else ""
    return f"{'log ' if one.log else ''}{one.low:g} to {one.high:g}{step}{when}"


def _objectives(spec: StudySpec) -> str:
    return " and ".join(f"{one.direction} {one.metric} ({one.take})" for one in spec.objectives)


def _plugins(some: tuple[Plugin, ...]) -> str:
    return ", ".join(one.name + (f" ({_options(one)})" if one.options else "") for one in some)


def _options(one: Plugin) -> str:
    shown = ((name, f"{value:g}" if isinstance(value, float) else value) for name, value in one.options.items())
    return ", ".join(f"{name}: {value}" for name, value in shown)


def _confirm(spec: StudySpec) -> str:
    return f"{spec.confirm.top} with {spec.confirm.seeds} seeds" if spec.confirm is not None else ""


def _amount(value: int | None, currency: str) -> str | None:
    return None if value is None else format_amount(value, currency)


def _time(value: float | None) -> str | None:
    return None if value is None else f"{format_duration(round(value))} after its start"


def _shown(value: object) -> str:
    return "nothing" if value in (None, "") else str(value)
