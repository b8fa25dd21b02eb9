"""Cost of experiment families: what each success cost, and what attempts that failed added."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from muster.api.cost_reports import FamilyCost

FAMILIES: Final = (
    "All that a family was charged in the period, over its runs that succeeded. A family is the tag `family`, else "
    "what a rule of the price book says, else the name of the job. Failed: attempts of runs that did not succeed, and "
    "attempts before the last one of runs that did. Runs that are not over count as neither."
)


class FamilySums(NamedTuple):
    """What a family was charged in one currency, and how many of its runs there are and succeeded."""

    project: str
    family: str
    currency: str
    amount: int
    failed: int
    platform: int
    runs: int
    succeeded: int


def family_costs(families: Iterable[FamilySums]) -> list[FamilyCost]:
    """The largest amount first."""
    ordered = sorted(families, key=lambda one: (-one.amount, one.project, one.family, one.currency))
    return [_view(one) for one in ordered]


def _view(one: FamilySums) -> FamilyCost:
    good = one.succeeded
    return {
        "project": one.project,
        "family": one.family,
        "currency": one.currency,
        "amount": one.amount,
        "failed": one.failed,
        "platform": one.platform,
        "runs": one.runs,
        "succeeded": good,
        "per_success": (2 * one.amount + good) // (2 * good) if good else None,
    }
