"""What is charged by the day: reserved and owned capacity that nobody used, and stored bytes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import date, timedelta
from typing import Final, NamedTuple
from zoneinfo import ZoneInfo

from muster.core.cost_events import PoolIdle, ProjectStored
from muster.core.money import divide
from muster.core.period import day_period
from muster.core.prices import SECOND, PriceBook, Prices, Quantity, amount
from muster.core.resources import WHOLE

COMMITTED: Final = ("reserved", "owned")  # kinds of prices that are paid whether something is used or not
_MILLI: Final = 1000
GB: Final = 10**9


class DayBounds(NamedTuple):
    """A day of a time zone, in microseconds since 1970. Where clocks change it is an hour longer or shorter."""

    name: str
    begin: int
    end: int

    @property
    def milliseconds(self) -> int:
        return (self.end - self.begin) // _MILLI


def day_bounds(name: str, zone: ZoneInfo) -> DayBounds:
    day = day_period(name, name, zone)
    return DayBounds(name, round(day.begin * SECOND), round(day.end * SECOND))


def days_between(after: str, before: str, most: int) -> Iterator[str]:
    """The dates after the one and before the other, the last `most` of them."""
    last = date.fromisoformat(before)
    first = max(date.fromisoformat(after) + timedelta(days=1), last - timedelta(days=most))
    while first < last:
        yield first.isoformat()
        first += timedelta(days=1)


def idle_charge(
    prices: Prices, pool: str, day: DayBounds, used: Mapping[str, int], projects: Sequence[str]
) -> PoolIdle | None:
    """What the pool's committed capacity cost on a day on which nobody used it; None if there is none.

    `used`: project → thousandths of accelerators × milliseconds. `projects`: those that share it under `equal`.
    """
    capacity = total = cost = 0
    for span in prices.spans(pool, Quantity(WHOLE, 0, 0, 1), day.begin, day.end):
        price = span.price
        if price is None or price.kind not in COMMITTED or not price.capacity or span.nanos is None:
            continue
        time = (span.end - span.begin) // _MILLI
        capacity = price.capacity
        total += capacity * WHOLE * time
        cost += amount(span.nanos * capacity, span.end - span.begin)
    idle = max(0, total - sum(used.values()))
    if not capacity:
        return None
    owed = (2 * cost * idle + total) // (2 * total)
    return PoolIdle(
        pool, day.name, idle, owed, prices.book.currency, prices.book.version,
        _shares(prices.book, owed, used, projects),
    )  # fmt: skip


def storage_charge(book: PriceBook, day: DayBounds, stored: int) -> ProjectStored | None:
    """What a project's bytes cost for a day; None if they have no price or there are none."""
    if book.storage is None or not stored:
        return None
    nanos = (book.storage * stored + GB // 2) // GB
    kept, cost = stored * day.milliseconds, amount(nanos, day.end - day.begin)
    return ProjectStored(day.name, kept, cost, book.currency, book.version)


def _shares(book: PriceBook, owed: int, used: Mapping[str, int], projects: Sequence[str]) -> dict[str, int]:
    """Who pays: project → amount; the name "" is the platform."""
    weights = {"used": {name: time for name, time in sorted(used.items()) if time > 0},
               "equal": dict.fromkeys(sorted(projects), 1)}.get(book.idle, {})  # fmt: skip
    if not weights:
        return {"": owed}
    return dict(zip(weights, divide(owed, list(weights.values())), strict=True))
