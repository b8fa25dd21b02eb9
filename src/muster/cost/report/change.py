"""The change of costs since the period before, by what changed: hours or prices."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from muster.api.cost_reports import CostChange
from muster.core.money import format_amount
from muster.cost.report.sums import HELD_HOUR, Sum, merged

CHANGE: Final = (
    "The difference to the same days of the period before, by project, pool and account. Volume: the difference in "
    "hours, at the price before. Price: the difference in the price of an hour, for the hours of now. What has no "
    "hours in one of the two is volume. The parts add up to the whole difference."
)
BY: Final = ("project", "pool", "account")


def changes(before: Iterable[Sum], now: Iterable[Sum]) -> tuple[list[CostChange], list[CostChange]]:
    """The change by currency, and by project, pool and account, the largest first. Rows have the keys `BY`."""
    old = {(one.keys, one.currency): one for one in merged(before)}
    new = {(one.keys, one.currency): one for one in merged(now)}
    found = [_change(key, old.get(key), new.get(key)) for key in {**old, **new}]
    totals: dict[str, CostChange] = {}
    for one in found:
        total = totals.setdefault(one["currency"], _view(("", "", ""), one["currency"], 0, 0, 0))
        for name in ("before", "now", "change", "volume", "price"):
            total[name] += one[name]
    for total in totals.values():
        total["words"] = _words("In all", total)
    moved = [one for one in found if one["change"]]
    moved.sort(key=lambda one: (-abs(one["change"]), one["project"], one["pool"], one["account"]))
    return sorted(totals.values(), key=lambda one: one["currency"]), moved


def _change(key: tuple[tuple[str, ...], str], old: Sum | None, new: Sum | None) -> CostChange:
    keys, currency = key
    before, now = (one.amount if one is not None else 0 for one in (old, new))
    held = [one.held + one.workers if one is not None else 0 for one in (old, new)]
    volume = now - before
    if held[0] > 0 and held[1] > 0:
        # Hours at the price before: amounts are whole, and what is left is the price's part.
        volume = (2 * before * (held[1] - held[0]) + held[0]) // (2 * held[0])
    made = _view((keys[0], keys[1], keys[2]), currency, before, now, volume)
    who = keys[0] or "the platform"
    where = f" on pool {keys[1]}" if keys[1] else ""
    made["words"] = _words(f"{who}{where} ({keys[2]})", made, held[0] / HELD_HOUR, held[1] / HELD_HOUR)
    return made


def _view(keys: tuple[str, str, str], currency: str, before: int, now: int, volume: int) -> CostChange:
    project, pool, account = keys
    return {
        "project": project,
        "pool": pool,
        "account": account,
        "currency": currency,
        "before": before,
        "now": now,
        "change": now - before,
        "volume": volume,
        "price": now - before - volume,
        "words": "",
    }


def _words(who: str, one: CostChange, before: float = 0.0, now: float = 0.0) -> str:
    money = one["currency"]
    sign = "more" if one["change"] > 0 else "less" if one["change"] < 0 else "no change"
    if not one["change"]:
        return f"{who}: no change"
    text = f"{who}: {format_amount(abs(one['change']), money)} {sign}"
    if before and now:
        text += f", {before:,.1f} → {now:,.1f} hours"
    parts = [(one["volume"], "hours"), (one["price"], "prices")]
    told = [f"{format_amount(amount, money)} by {name}" for amount, name in parts if amount]
    return f"{text} ({', '.join(told)})" if told else text
