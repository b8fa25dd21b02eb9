"""What a study is, how far it is, and which of its limits it reaches first."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from muster.api.studies import LimitView, StudyHead, StudyLimits, StudyState
from muster.tune.draft import is_counted
from muster.tune.report.facts import StudyFacts
from muster.tune.report.objectives import objectives
from muster.tune.report.ranking import Ranking
from muster.tune.spec import Plugin
from muster.tune.view import StudyView

_Limit = Literal["trials", "cost", "seconds"]
_ENOUGH = 3  # trials that have ended before a pace is told


def head(view: StudyView, facts: StudyFacts, ranks: Ranking) -> StudyHead:
    study = facts.study
    return {
        "id": view.id,
        "name": study.name,
        "project": study.project,
        "user": study.user,
        "state": _state(facts),
        "began": study.created_at,
        "ended": study.ended_at,
        "now": facts.now,
        "seed": view.seed,
        "objectives": objectives(view, ranks),
        "constraints": list(view.spec.constraints),
        "search": [_plugin(one) for one in view.spec.search],
        "stop": _plugin(view.spec.stop),
        "prior": len(view.prior),
        "wait": facts.wait.to_dict() if facts.wait is not None else None,
        "stopped": study.stopped.to_dict() if study.stopped is not None else None,
        "currency": facts.currency,
        "limits": limits(view, facts),
    }


def limits(view: StudyView, facts: StudyFacts) -> StudyLimits:
    """How far it is by each of its limits, and which of them ends it."""
    spec, trials = view.spec, view.trials.values()
    until = facts.study.ended_at if facts.study.ended_at is not None else facts.now
    passed = max(0.0, until - facts.study.created_at)
    counted = [one for one in trials if is_counted(one)]
    used: dict[_Limit, float] = {
        "trials": len(counted), "cost": sum(map(facts.cost, trials)), "seconds": passed,
    }  # fmt: skip
    known: dict[_Limit, LimitView] = {
        "trials": _limit(used["trials"], spec.trials),
        "cost": _limit(used["cost"], spec.cost),
        "seconds": _limit(passed, spec.until),
    }
    over = sum(one.phase == "ended" for one in counted)
    first = _first(known, {**used, "trials": over}, passed) if _state(facts) == "running" and over >= _ENOUGH else None
    return {
        "trials": known["trials"],
        "parallel": _limit(sum(one.live for one in trials), spec.parallel),
        "cost": known["cost"],
        "seconds": known["seconds"],
        "ends_in": first[0] if first is not None else None,
        "ends_by": first[1] if first is not None else None,
    }


def _state(facts: StudyFacts) -> StudyState:
    if facts.study.ended_at is not None:
        return "ended"
    return "stopping" if facts.study.stopped is not None else "running"


def _plugin(one: Plugin) -> str:
    """`asha (eta=3, levels=[1, 3, 9])`."""
    options = ", ".join(f"{name}={_option(value)}" for name, value in one.options.items())
    return f"{one.name} ({options})" if options else one.name


def _option(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name}: {_option(one)}" for name, one in value.items())
    return ("true" if value else "false") if isinstance(value, bool) else f"{value}"


def _limit(used: float, limit: float | None) -> LimitView:
    return {"used": used, "limit": limit, "left": None if limit is None else max(0, limit - used)}


def _first(
    limits: Mapping[_Limit, LimitView], done: Mapping[_Limit, float], passed: float
) -> tuple[float, _Limit] | None:
    """When the first limit is reached, if trials end and cost on as they did so far."""
    found: list[tuple[float, _Limit]] = []
    for name, one in limits.items():
        if one["limit"] is not None and done[name] > 0:
            found.append((max(0.0, one["limit"] - done[name]) * passed / done[name], name))
    return min(found, default=None)
