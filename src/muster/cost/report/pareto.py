"""Runs by cost and by a metric: those that no other run beats in both, and what each further point cost."""

from __future__ import annotations

from collections.abc import Iterable
from math import isfinite
from typing import Final, Literal, NamedTuple

from muster.api.cost_reports import RunCost
from muster.core.money import MICRO

Better = Literal["lower", "higher"]
PARETO: Final = (
    "What each run was charged in the period, with the best value that it reported of the metric. On the front are the "
    "runs of which no other is cheaper and at least as good. Marginal: the amount over the points of the metric that "
    "a run on the front is better than the one before it."
)


class RunValue(NamedTuple):
    run: str
    name: str
    project: str
    currency: str
    amount: int
    value: float


def pareto(runs: Iterable[RunValue], better: Better, limit: int = 1000) -> list[RunCost]:
    """Those on the front first, the cheapest first; then the others. Each currency has a front of its own."""
    sign = 1.0 if better == "higher" else -1.0
    front, rest = list[RunCost](), list[RunValue]()
    last: dict[str, RunValue] = {}
    finite = [one for one in runs if isfinite(one.value)]
    for one in sorted(finite, key=lambda one: (one.currency, one.amount, -sign * one.value, one.run)):
        before = last.get(one.currency)
        if before is None:
            front.append(_view(one, True, None))
        elif sign * one.value > sign * before.value:
            front.append(_view(one, True, (one.amount - before.amount) / MICRO / abs(one.value - before.value)))
        else:
            rest.append(one)
            continue
        last[one.currency] = one
    return [*front, *(_view(one, False, None) for one in rest[: max(0, limit - len(front))])]


def _view(one: RunValue, front: bool, marginal: float | None) -> RunCost:
    return {
        "run": one.run,
        "name": one.name,
        "project": one.project,
        "currency": one.currency,
        "amount": one.amount,
        "value": one.value,
        "front": front,
        "marginal": marginal,
    }
