"""Whether to reserve or buy: how many hours a month each accelerator of a pool was in use, against the break-even."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from muster.core.money import MICRO, NANO
from muster.cost.advice.facts import MONTH_HOURS, Advice, AdviceFacts, PoolFact

YEARS: Final = (2, 3)  # that owned machines are used
YEAR_HOURS: Final = 8760.0
DAYS: Final = 7.0  # of demand from which on a commitment is advised
UNITS: Final = 100_000


class Offer(NamedTuple):
    """A commitment: millionths for an hour of one accelerator, used or not."""

    what: str
    per_hour: float


def reserve(facts: AdviceFacts) -> Iterator[Advice]:
    """Of pools on demand; for those who see the whole platform."""
    if not facts.whole or facts.days < DAYS:
        return
    for pool in facts.pools.values():
        if pool.per_hour is None or not pool.per_hour or pool.price != "on_demand" or not pool.demand:
            continue
        curve = duration_curve(pool.demand)
        offers = list(_offers(facts, pool))
        found = [one for offer in offers if (one := _advice(facts, pool, curve, offer)) is not None]
        if found:
            evens = [
                f"{one.what}: pays from {break_even(pool.per_hour, one.per_hour):.0f} hours a month on"
                for one in offers
            ]
            evidence = (f"{facts.days:.0f} days of demand", *evens)
            yield replace(max(found, key=lambda one: one.saves), evidence=evidence)


def duration_curve(demand: Sequence[tuple[float, float]]) -> list[float]:
    """For the first accelerator, the second and so on: the hours a month in which at least so many were in use.

    A mean of 2.5 in an hour counts as half an hour of the third.
    """
    seen = sum(hours for _, hours in demand)
    most = min(UNITS, int(max((used for used, _ in demand), default=0.0)) + 1)
    found = [0.0] * most
    for used, hours in demand:
        for unit in range(min(most, int(used) + 1)):
            found[unit] += min(1.0, max(0.0, used - unit)) * hours
    return [hours * MONTH_HOURS / seen for hours in found] if seen else []


def break_even(on_demand: float, committed: float) -> float:
    """Hours a month from which on the commitment is cheaper."""
    return MONTH_HOURS * committed / on_demand


def _offers(facts: AdviceFacts, pool: PoolFact) -> Iterator[Offer]:
    if facts.reserve_price is not None:
        yield Offer("reserved for a year", facts.reserve_price)
    if facts.buy_price is not None:
        for years in YEARS:
            yield Offer(f"bought and used for {years} years", facts.buy_price / (years * YEAR_HOURS))
    for other in facts.pools.values():
        if other.accelerator != pool.accelerator or not pool.accelerator:
            continue
        for price in facts.prices.book.pools.get(other.name, ()):
            if price.kind in ("reserved", "owned") and price.accelerator is not None:
                yield Offer(f"{price.kind} as in pool {other.name}", price.accelerator * MICRO / NANO)


def _advice(facts: AdviceFacts, pool: PoolFact, curve: Sequence[float], offer: Offer) -> Advice | None:
    assert pool.per_hour is not None
    even = break_even(pool.per_hour, offer.per_hour)
    units = [hours for hours in curve if hours > even]
    if not units:
        return None
    now, then = sum(units) * pool.per_hour, len(units) * MONTH_HOURS * offer.per_hour
    count = f"{len(units)} accelerator{'s' if len(units) > 1 else ''}"
    return Advice(
        "reserve", f"pool {pool.name}: {count} {offer.what}", "", round(now - then),
        f"break-even at {MONTH_HOURS:.0f} h × {facts.money(offer.per_hour)} / {facts.money(pool.per_hour)} = "
        f"{even:.0f} hours a month; {count} were in use for more, the least of them {min(units):.0f} hours; on demand "
        f"{sum(units):,.0f} h × {facts.money(pool.per_hour)} = {facts.money(now)} a month, {offer.what} "
        f"{len(units)} × {MONTH_HOURS:.0f} h × {facts.money(offer.per_hour)} = {facts.money(then)}",
        f"muster cost apply BOOK.yaml  # with `capacity: {len(units)}` and the price that was agreed",
    )  # fmt: skip
