"""Figures of held time and money: effective training time, cost of an experiment, and of a family that succeeded."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from muster.core.money import MICRO
from muster.monitor.report.facts import UNIT_HOUR, Facts, RunFact, Terms
from muster.monitor.report.figure import Figure, ratio

_UNPRICED = "no price: give the pools a `price` in the policy (`muster queue rules`)"
_NOTHING = "nothing was charged for an experiment: pools without a `price` are not"


class _Costs(NamedTuple):
    by_experiment: dict[str, float]
    by_family: dict[tuple[str, str], float]  # project and family
    unpriced: float  # hours
    priced: bool


def spending_figures(facts: Facts, terms: Terms) -> Iterator[Figure]:
    yield _effective(facts, terms)
    costs = _costs(facts)
    yield _per_experiment(costs)
    yield _per_family(facts, costs)


def family_of(run: RunFact) -> tuple[str, str]:
    return run.project, run.family or run.name


def _effective(facts: Facts, terms: Terms) -> Figure:
    training, held = 0, 0.0
    for one in facts.held:
        known = facts.runs.get(one.run)
        if one.unit == terms.unit and known is not None and known.kind == "train":
            training += one.units * one.parts.get("training", 0)
            held += one.hours
    return Figure(
        "effective",
        "Effective training time",
        "share",
        f"{terms.unit} hours of the class training, over those that runs of kind train held",
        ratio(training / UNIT_HOUR, held),
        "" if held else "no run of kind train held anything",
        better="higher",
        details={"training_hours": training / UNIT_HOUR, "held_hours": held} if held else {},
    )


def _costs(facts: Facts) -> _Costs:
    by_experiment: dict[str, float] = {}
    by_family: dict[tuple[str, str], float] = {}
    unpriced, priced = 0.0, False
    for run, one in facts.costs.items():
        experiment = facts.experiment(run)
        if experiment is None:
            continue
        unpriced += one.unpriced
        if not one.amount:
            continue
        priced, cost = True, one.amount / MICRO
        by_experiment[experiment.id] = by_experiment.get(experiment.id, 0.0) + cost
        family = family_of(experiment)
        by_family[family] = by_family.get(family, 0.0) + cost
    return _Costs(by_experiment, by_family, unpriced, priced)


def _per_experiment(costs: _Costs) -> Figure:
    total, count = sum(costs.by_experiment.values()), len(costs.by_experiment)
    return Figure(
        "experiment_cost",
        "Cost per experiment",
        "amount",
        "what the cost ledger has of experiments and their tasks then, over the experiments with an amount",
        ratio(total, count),
        "" if count else _UNPRICED if costs.unpriced else _NOTHING,
        better="lower",
        details={"cost": total, "experiments": count, "unpriced_hours": costs.unpriced} if count else {},
    )


def _per_family(facts: Facts, costs: _Costs) -> Figure:
    good = {
        family_of(experiment)
        for one in facts.ended
        if one.phase == "succeeded" and (experiment := facts.experiment(one.id)) is not None
    }
    found = [cost for family, cost in costs.by_family.items() if family in good]
    why = "no family had a run that succeeded" if costs.priced else _UNPRICED if costs.unpriced else _NOTHING
    return Figure(
        "family_cost",
        "Cost per successful family",
        "amount",
        "what the cost ledger has then of families of which a run succeeded then, over these families; a family is the "
        "tag `family`, else the experiment, else the name of the job",
        ratio(sum(found), len(found)),
        "" if found else why,
        better="lower",
        details={"cost": sum(found), "families": len(found)} if found else {},
    )
