"""Sums of ledger entries by dimensions, and how a report shows them: a row for each group and currency."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import date
from typing import Final, NamedTuple

from muster.api.cost_reports import CostRow, CostTotal
from muster.core.errors import Invalid
from muster.core.resources import WHOLE

TIMES: Final = ("day", "week", "month")
DIMENSIONS: Final = (
    "project", "user", "queue", "kind", "family", "environment", "pool", "account", "price", *TIMES, "run",
)  # fmt: skip
HELD_HOUR: Final = WHOLE * 3_600_000  # thousandths of a unit × milliseconds
MOST_DIMENSIONS: Final = 4


class Sum(NamedTuple):
    """What the entries of one group and currency add up to. `keys` are in the order of the dimensions.

    `held` and `workers`: thousandths × milliseconds of accelerators, and of workers that hold none. `pending`: what
    attempts that still run have cost so far, which is in no other field.
    """

    keys: tuple[str, ...]
    currency: str
    amount: int = 0
    platform: int = 0
    idle: int = 0
    storage: int = 0
    listed: int = 0
    held: int = 0
    workers: int = 0
    unpriced: int = 0
    entries: int = 0
    pending: int = 0

    def plus(self, other: Sum) -> Sum:
        return Sum(self.keys, self.currency, *(a + b for a, b in zip(self[2:], other[2:], strict=True)))


def parse_by(text: str) -> tuple[str, ...]:
    """The dimensions of `project,user`. Raises Invalid."""
    names = tuple(dict.fromkeys(part.strip().lower() for part in text.split(",") if part.strip()))
    unknown = [name for name in names if name not in DIMENSIONS]
    if unknown:
        raise Invalid(f"by has {', '.join(map(repr, unknown))}.", f"Give some of {', '.join(DIMENSIONS)}.")
    if len(names) > MOST_DIMENSIONS:
        raise Invalid(f"by has {len(names)} dimensions.", f"Give at most {MOST_DIMENSIONS}.")
    return names


def merged(rows: Iterable[Sum]) -> list[Sum]:
    """One row for each group and currency, the largest amount first."""
    found: dict[tuple[tuple[str, ...], str], Sum] = {}
    for one in rows:
        key = (one.keys, one.currency)
        known = found.get(key)
        found[key] = one if known is None else known.plus(one)
    return sorted(found.values(), key=lambda one: (-(one.amount + one.pending), one.keys, one.currency))


def totals(rows: Iterable[Sum]) -> list[Sum]:
    """One row for each currency: amounts of two currencies are never added."""
    return merged(one._replace(keys=()) for one in rows)


def time_key(dimension: str, day: str) -> str:
    """The value of a dimension of time for a day."""
    if dimension == "month":
        return day[:7]
    if dimension == "week":
        year, week, _ = date.fromisoformat(day).isocalendar()
        return f"{year:04d}-W{week:02d}"
    return day


def by_time(rows: Iterable[Sum], by: Sequence[str]) -> list[Sum]:
    """Rows whose weeks and months are given as days, with the weeks and months in their place."""
    places = [(place, name) for place, name in enumerate(by) if name in TIMES]
    if not places:
        return merged(rows)

    def named(one: Sum) -> Sum:
        keys = list(one.keys)
        for place, name in places:
            keys[place] = time_key(name, keys[place])
        return one._replace(keys=tuple(keys))

    return merged(map(named, rows))


def total_view(one: Sum) -> CostTotal:
    return {
        "currency": one.currency,
        "amount": one.amount,
        "platform": one.platform,
        "idle": one.idle,
        "storage": one.storage,
        "listed": one.listed,
        "pending": one.pending,
        "accelerator_hours": hours(one.held),
        "worker_hours": hours(one.workers),
        "unpriced_hours": hours(one.unpriced),
        "entries": one.entries,
    }


def row_view(one: Sum, by: Sequence[str]) -> CostRow:
    group: Mapping[str, str] = dict(zip(by, one.keys, strict=True))
    return {"group": dict(group), **total_view(one)}


def hours(held: int) -> float:
    return held / HELD_HOUR
