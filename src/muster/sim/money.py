"""What a simulation cost: charges to projects and to the platform as they are made, and capacity that nobody used."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from muster.core.cost_events import AttemptCharged
from muster.core.entities.price_book import prices_of
from muster.core.prices import SECOND, Price, PriceBook, Prices, Quantity
from muster.core.resources import WHOLE
from muster.core.state import State
from muster.cost.charge import UNPRICED
from muster.cost.daily import COMMITTED
from muster.cost.estimate import cost_between
from muster.sim.model import Cluster, Money, PoolShape, Setup

_ONE: Final = Quantity(accelerators=WHOLE, workers=1)
_BUCKET: Final = 3600 * SECOND  # of the use of such capacity, in microseconds


def has_prices(setup: Setup) -> bool:
    return setup.prices is not None or any(rule.price for rule in setup.rules.pools.values())


def at_one_time(book: PriceBook, time: float) -> PriceBook:
    """The book with the prices of this time alone, for a clock that has no date: days are those of UTC. Hours of the
    week stay."""
    prices = Prices(book, {})
    found = {name: prices.at(name, time) or Price(unpriced=True) for name in book.pools}
    pools = {name: (one.model_copy(update={"since": 0.0, "until": None}),) for name, one in found.items()}
    return book.model_copy(update={"pools": pools, "timezone": "UTC"})


@dataclass(slots=True)
class _Capacity:
    """Reserved or owned capacity of a pool: so many accelerators, and what was used of them by hour."""

    pool: str
    units: int
    used: dict[int, int]  # hour → thousandths of units × microseconds


class MoneyTally:
    """Adds up the charges of one setup. Keeps sums and the hours of fixed capacity, not the charges."""

    def __init__(self, state: State, cluster: Cluster, now: float) -> None:
        self._prices, self._start = prices_of(state), round(now * SECOND)
        self._sum = Money(self._prices.book.currency)
        self._fixed = {one.pool: one for pool in cluster.pools if (one := self._capacity(pool, now)) is not None}

    def add(self, charge: AttemptCharged) -> None:
        self._sum.charged += charge.amount
        self._sum.platform += charge.platform
        held, known = Quantity(*charge.held), self._fixed.get(charge.pool)
        units = held.accelerators or held.workers * WHOLE
        for begin, end, rate, *_ in charge.lines:
            if rate == UNPRICED:
                self._sum.unpriced += units / WHOLE * (int(end) - int(begin)) / _BUCKET
            if known is not None:
                _spread(known.used, int(begin), int(end), units)

    def total(self, now: float) -> Money:
        """The sums, with what nobody used until now."""
        end = round(now * SECOND)
        for one in self._fixed.values():
            at = self._start
            while at < end:
                until = min(end, (at // _BUCKET + 1) * _BUCKET)
                whole = one.units * WHOLE * (until - at)
                idle = max(whole - one.used.get(at // _BUCKET, 0), 0)
                each = cost_between(self._prices, one.pool, _ONE, at / SECOND, (until - at) / SECOND)
                self._sum.idle += (each or 0) * one.units * idle // whole if whole else 0
                at = until
        return self._sum

    def _capacity(self, pool: PoolShape, now: float) -> _Capacity | None:
        price = self._prices.at(pool.name, now)
        if price is None or price.kind not in COMMITTED or not price.capacity:
            return None
        return _Capacity(pool.name, price.capacity, {})


def _spread(used: dict[int, int], begin: int, end: int, units: int) -> None:
    while begin < end:
        hour = begin // _BUCKET
        until = min(end, (hour + 1) * _BUCKET)
        used[hour] = used.get(hour, 0) + units * (until - begin)
        begin = until
