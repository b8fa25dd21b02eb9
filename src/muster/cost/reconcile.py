"""Compares the ledger with another account of the same work: what matches, what one side alone has, and the causes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, Literal, NamedTuple

from muster.api.typed import TypedDict

EXACT: Final = 0.005  # relative difference of hours or amounts that is none
LISTED: Final = 1000


class Account(NamedTuple):
    """Accelerator-hours, or those of nodes without any, and an amount in millionths; None: it does not say."""

    hours: float
    amount: int | None = None

    def plus(self, other: Account) -> Account:
        amounts = [one for one in (self.amount, other.amount) if one is not None]
        return Account(self.hours + other.hours, sum(amounts) if amounts else None)


def added(rows: Iterable[tuple[str, Account]]) -> dict[str, Account]:
    """The sums by key."""
    found: dict[str, Account] = {}
    for key, one in rows:
        found[key] = found[key].plus(one) if key in found else one
    return found


class ReconciledRow(TypedDict):
    """Hours, or amounts in units of the currency. `state`: matches, differs, only here or only there."""

    key: str
    state: str
    ours: float
    theirs: float
    difference: float
    cause: str


class Reconciled(TypedDict):
    """The ledger against another account: how many keys match, and the differences, the largest first."""

    compared: Literal["hours", "amounts"]
    matching: int
    only_ours: int
    only_theirs: int
    ours: float
    theirs: float
    differences: list[ReconciledRow]
    left_out: int


def reconciled(ours: Mapping[str, Account], theirs: Mapping[str, Account], money: bool) -> Reconciled:
    """By key. With `money` amounts are compared, else hours."""
    rows = [_row(key, ours.get(key), theirs.get(key), money) for key in sorted({*ours, *theirs})]
    different = [one for one in rows if one["state"] != "matches"]
    different.sort(key=lambda one: -abs(one["difference"]))
    return {
        "compared": "amounts" if money else "hours",
        "matching": len(rows) - len(different),
        "only_ours": sum(one["state"] == "only here" for one in different),
        "only_theirs": sum(one["state"] == "only there" for one in different),
        "ours": sum(_value(one, money) for one in ours.values()),
        "theirs": sum(_value(one, money) for one in theirs.values()),
        "differences": different[:LISTED],
        "left_out": max(0, len(different) - LISTED),
    }


def _row(key: str, ours: Account | None, theirs: Account | None, money: bool) -> ReconciledRow:
    here, there = _value(ours, money), _value(theirs, money)
    difference = here - there
    same = abs(difference) <= EXACT * max(abs(here), abs(there))
    state = "only here" if theirs is None else "only there" if ours is None else "matches" if same else "differs"
    return {"key": key, "state": state, "ours": here, "theirs": there, "difference": difference,
            "cause": _cause(ours, theirs, money) if state == "differs" else state}  # fmt: skip


def _cause(ours: Account | None, theirs: Account | None, money: bool) -> str:
    assert ours is not None
    assert theirs is not None
    if not money:
        return "the ledger counts from the plan to the end, the other from the start" if ours.hours > theirs.hours \
            else "the other has attempts, or steps, that the ledger does not"  # fmt: skip
    if ours.hours and theirs.hours and abs(ours.hours - theirs.hours) > EXACT * max(ours.hours, theirs.hours):
        return f"hours: {ours.hours:,.2f} here, {theirs.hours:,.2f} there"
    return "the price: discounts, or a price book that differs from the bill"


def _value(one: Account | None, money: bool) -> float:
    if one is None:
        return 0.0
    return (one.amount or 0) / 1_000_000 if money else one.hours
