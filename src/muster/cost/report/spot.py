"""What spot capacity saved net of its interruptions, and what an accelerator-hour really cost."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from muster.api.cost_reports import HourCost, SpotCost
from muster.cost.report.sums import HELD_HOUR, Sum, hours, merged

SPOT: Final = (
    "Share: accelerator-hours at spot prices over all accelerator-hours. Saved: what they would have cost at list "
    "price, less what they cost. Lost: what the platform paid on them for starts and for work that interruptions took. "
    "Net: saved less lost."
)
HOURS: Final = (
    "Amounts over the accelerator-hours that attempts held: at list price, as charged, and with the capacity that "
    "nobody used. Useful: the last, over the hours whose amount went to training and evaluating."
)
BY: Final = ("pool", "price", "account")


def spot_costs(rows: Iterable[Sum]) -> list[SpotCost]:
    """For all pools together (""), then for each with spot prices. Rows have the keys `BY`."""
    every = [*rows]
    whole = {one.currency: one.held for one in merged(one._replace(keys=()) for one in every)}
    found = []
    for name in ("", *sorted({one.keys[0] for one in every if one.keys[1] == "spot"})):
        mine = [one for one in every if one.keys[1] == "spot" and name in ("", one.keys[0])]
        pool = whole if not name else _held(every, name)
        for one in merged(each._replace(keys=(name,)) for each in mine):
            saved, lost = one.listed - one.amount, one.platform
            total = pool.get(one.currency, 0)
            found.append(
                SpotCost(
                    pool=name, currency=one.currency, amount=one.amount, share=one.held / total if total else None,
                    saved=saved, lost=lost, net=saved - lost,
                )
            )  # fmt: skip
    return found


def hour_costs(rows: Iterable[Sum], useful: Mapping[tuple[str, str], tuple[int, int]]) -> list[HourCost]:
    """By pool and currency, the most hours first. Rows have the keys `BY`.

    `useful`: pool and currency → the amounts that went to training and evaluating, and all of them without idle
    capacity.
    """
    found: list[HourCost] = []
    for one in merged(each._replace(keys=each.keys[:1]) for each in rows if each.keys[0]):
        if one.held <= 0:
            continue
        priced = one.held - one.unpriced
        if priced <= 0:
            continue
        good, charged = useful.get((one.keys[0], one.currency), (0, 0))
        found.append(
            HourCost(
                pool=one.keys[0], currency=one.currency, hours=hours(one.held),
                listed=_per_hour(one.listed - one.idle, priced), charged=_per_hour(one.amount - one.idle, priced),
                with_idle=_per_hour(one.amount, priced),
                useful=_per_hour(one.amount * charged // good, priced) if good > 0 else None,
            )
        )  # fmt: skip
    return sorted(found, key=lambda one: (-one["hours"], one["pool"], one["currency"]))


def _held(rows: Iterable[Sum], pool: str) -> dict[str, int]:
    return {one.currency: one.held for one in merged(each._replace(keys=()) for each in rows if each.keys[0] == pool)}


def _per_hour(amount: int, held: int) -> int:
    return round(amount * HELD_HOUR / held)
