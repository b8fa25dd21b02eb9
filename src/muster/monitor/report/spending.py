"""Figures of held time and money: effective training time, cost of an experiment, and of a family that succeeded."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from muster.monitor.report.facts import HOUR, UNIT_HOUR, Facts, HeldFact, RunFact, Terms
from muster.monitor.report.figure import Figure, ratio
from muster.monitor.time_ledger import SECOND

_UNPRICED = "no price: give the pools a `price` in the policy (`muster queue rules`)"


class _Costs(NamedTuple):
    by_experiment: dict[str, float]
    by_family: dict[tuple[str, str], float]  # project and family
    unpriced: float  # hours
    priced: bool


def spending_figures(facts: Facts, terms: Terms) -> Iterator[Figure]:
    yield _effective(facts, terms)
    costs = _costs(facts, terms)
    yield _per_experiment(costs)
    yield _per_family(facts, costs)


def cost_of_held(one: HeldFact, price: float) -> float:
    """At a price per accelerator and hour; per node and hour if it held none."""
    if one.unit == "accelerator":
        return one.hours * price
    return one.nodes * sum(one.parts.values()) / (SECOND * HOUR) * price


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


def _costs(facts: Facts, terms: Terms) -> _Costs:
    by_experiment: dict[str, float] = {}
    by_family: dict[tuple[str, str], float] = {}
    prices: dict[str, float] = {}
    unpriced, priced = 0.0, False
    for one in facts.held:
        experiment = facts.experiment(one.run)
        if experiment is None:
            continue
        price = prices.get(one.pool)
        if price is None:
            price = prices[one.pool] = terms.price(one.pool) if one.pool else 0.0
        if not price:
            unpriced += one.hours
            continue
        priced, cost = True, cost_of_held(one, price)
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
        "the price of the hours that experiments and their tasks held then, over the experiments that held any",
        ratio(total, count),
        "" if count else _UNPRICED if costs.unpriced else "no experiment held anything",
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
    why = (
        "no family had a run that succeeded"
        if costs.priced
        else _UNPRICED
        if costs.unpriced
        else "no experiment held anything"
    )
    return Figure(
        "family_cost",
        "Cost per successful family",
        "amount",
        "the price of what families held then of which a run succeeded then, over these families; a family is the tag "
        "`family`, else the experiment, else the name of the job",
        ratio(sum(found), len(found)),
        "" if found else why,
        better="lower",
        details={"cost": sum(found), "families": len(found)} if found else {},
    )
