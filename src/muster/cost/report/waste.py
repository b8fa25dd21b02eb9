"""Idle and waste in money, by cause: what was charged for time that trained nothing."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from muster.api.cost_reports import WasteCost

WASTE: Final = (
    "What was charged, by the class of the goodput ledger that the time went to. Every amount is in one cause alone. "
    "Training and evaluating are useful; storage is neither. Unknown: nothing says what the time went to."
)
USEFUL: Final = ("training", "evaluating")
_NEITHER: Final = ("storage",)
_WORDS: Final = {
    "starting": "Starts of jobs",
    "data": "Waits for data",
    "saving": "Waits for checkpoints",
    "done_again": "Steps done again",
    "idle": "Idle programs",
    "hung": "Hung programs",
    "lost": "Seats held after failures",
    "unknown": "Time of which nothing is known",
}


class ClassAmount(NamedTuple):
    """An amount by what the time went to. `cause`: the code of the reason of the loss."""

    project: str
    pool: str
    currency: str
    name: str
    cause: str
    amount: int


def waste_causes(amounts: Iterable[ClassAmount]) -> tuple[list[WasteCost], dict[str, int]]:
    """The causes, largest first, and what was useful by currency."""
    causes: dict[tuple[str, str, str], int] = {}
    useful: dict[str, int] = {}
    totals: dict[str, int] = {}
    for one in amounts:
        totals[one.currency] = totals.get(one.currency, 0) + one.amount
        kind = one.name.partition(".")[0]
        if kind in USEFUL:
            useful[one.currency] = useful.get(one.currency, 0) + one.amount
        elif kind not in _NEITHER:
            key = (_cause(one, kind), kind, one.currency)
            causes[key] = causes.get(key, 0) + one.amount
    found = [_view(key, amount, totals[key[2]]) for key, amount in causes.items() if amount]
    return sorted(found, key=lambda one: (-one["amount"], one["cause"], one["currency"])), useful


def _cause(one: ClassAmount, kind: str) -> str:
    if kind == "idle_capacity":
        return f"Capacity of pool {one.pool} that nobody used"
    why = f" after {one.cause}" if one.cause else ""
    return f"{_WORDS.get(kind, kind)}{why} in project {one.project}"


def _view(key: tuple[str, str, str], amount: int, total: int) -> WasteCost:
    cause, kind, currency = key
    return {
        "cause": cause,
        "kind": kind,
        "currency": currency,
        "amount": amount,
        "share": amount / total if total > 0 else None,
    }
