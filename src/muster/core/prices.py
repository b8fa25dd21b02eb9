"""The price book in canonical form: what the hours of each pool cost, from when until when, and who pays for what.

`cost.price_file` parses it. Prices are whole billionths of the book's currency for an hour, so that charges can be
computed in integers. Times are seconds since 1970.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from math import inf
from typing import Annotated, Final, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field

from muster.core.money import DEFAULT_CURRENCY, MICRO, NANO
from muster.core.resources import WHOLE, Resources
from muster.core.rules import Window
from muster.core.spec import JobSpec
from muster.core.windows import open_until, opens

PriceKind = Literal["on_demand", "spot", "reserved", "owned"]
IdleRule = Literal["platform", "used", "equal"]
SECOND: Final = 1_000_000  # microseconds
HOUR: Final = 3600 * SECOND
GB: Final = 10**9

Nanos = Annotated[int, Field(ge=0, le=10**21)]


class _Canonical(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Price(_Canonical):
    """The price of one pool in one span of time. None of a part: it has no price of its own."""

    since: float = 0.0
    until: float | None = None
    kind: PriceKind = "on_demand"
    unpriced: bool = False  # stated: there is no price in this span
    accelerator: Nanos | None = None  # of one, for an hour
    worker: Nanos | None = None  # of one worker, for pools without accelerators
    cpu: Nanos | None = None  # of one CPU
    memory: Nanos | None = None  # of 10^9 bytes
    list_accelerator: Nanos | None = None  # on demand, to compare with; None: the same
    off_peak: tuple[Window, ...] = ()  # hours of the week with another price
    off_peak_share: Annotated[int, Field(ge=0, le=1000)] = 1000  # thousandths of the price in these hours
    capacity: int | None = None  # accelerators that are reserved or owned, and cost money whether used or not
    term: float | None = None  # seconds of a commitment, or the lifetime of owned machines
    upfront: int = 0  # millionths, paid at the start: in the price already, spread over the term
    source: str = ""  # how the price was computed, for people


class Rate(_Canonical):
    """What one unit of another currency is worth in the book's, in millionths, from a time on."""

    currency: str
    since: float = 0.0
    micros: int = MICRO


class Match(_Canonical):
    """The name that jobs get which match all given patterns, where no tag says it."""

    name: str
    job: str = "*"
    project: str = "*"
    queue: str = "*"
    user: str = "*"


class PriceBook(_Canonical):
    version: int = 0  # counts the books of this server; 0: there is none
    currency: str = DEFAULT_CURRENCY
    timezone: str = "UTC"  # of days, weeks and months
    pools: dict[str, tuple[Price, ...]] = {}  # in order of time, without overlaps
    rates: tuple[Rate, ...] = ()
    lost_work: float = 14_400.0  # seconds of work since the last checkpoint that the platform pays, at most
    assumed_run: float = 3600.0  # seconds that a job is assumed to run if nothing is known of it
    idle: IdleRule = "platform"  # who pays reserved and owned capacity that nobody used
    storage: Nanos | None = None  # of 10^9 bytes for an hour
    transfer: Nanos | None = None  # of 10^9 bytes
    families: tuple[Match, ...] = ()
    environments: tuple[Match, ...] = ()


class Quantity(NamedTuple):
    """What a gang holds. Accelerators and CPUs in thousandths, memory in bytes."""

    accelerators: int = 0
    cpus: int = 0
    memory: int = 0
    workers: int = 0


class Span(NamedTuple):
    """A time of one price: microseconds since 1970, and billionths for an hour of the quantity. None: no price."""

    begin: int
    end: int
    nanos: int | None
    list_nanos: int | None
    price: Price | None


class Prices:
    """The prices in force: the book's, and for pools that it does not name those of the policy at their times.

    `policy`: pool → (from when, billionths for an hour of an accelerator, or of a worker that has none), in order.
    """

    def __init__(self, book: PriceBook, policy: Mapping[str, tuple[tuple[float, int], ...]]) -> None:
        self.book, self.policy = book, policy

    @property
    def pools(self) -> set[str]:
        """The pools that have, or had, a price."""
        return {*self.book.pools, *self.policy}

    @property
    def any(self) -> bool:
        return bool(self.book.pools) or any(nanos for changes in self.policy.values() for _, nanos in changes)

    def at(self, pool: str, time: float) -> Price | None:
        """The price of the pool at this time; None if it has none."""
        found = next((one for one in self.of(pool) if one.since <= time < _end(one)), None)
        return None if found is None or found.unpriced else found

    def hourly(self, pool: str, held: Quantity, time: float) -> int | None:
        """Millionths for an hour of this quantity, at the price of this time; None if there is no price."""
        price = self.at(pool, time)
        if price is None:
            return None
        away = opens(price.off_peak, time) > time if price.off_peak else True
        return -(-_rate(price, held) * (WHOLE if away else price.off_peak_share) // (WHOLE * 1000))

    def next_change(self, pool: str, time: float) -> float:
        """When time alone next changes the price of the pool; inf for never."""
        found = inf
        for price in self.of(pool):
            found = min([found, *(at for at in (price.since, _end(price)) if at > time)])
            if price.off_peak and price.since <= time < _end(price):
                starts = opens(price.off_peak, time)
                found = min(found, starts if starts > time else open_until(price.off_peak, time))
        return found

    def spans(self, pool: str, held: Quantity, begin: int, end: int) -> Iterator[Span]:
        """The time from `begin` to `end` (microseconds) in spans of one price, without a gap."""
        at = begin
        for price in self.of(pool):
            until = min(end, _micros(_end(price)))
            if until <= at:
                continue
            if (since := _micros(price.since)) > at:
                yield Span(at, min(since, end), None, None, None)
                at = min(since, end)
            if at < until:
                yield from _priced(price, held, at, until)
                at = until
            if at >= end:
                return
        if at < end:
            yield Span(at, end, None, None, None)

    def differ_from(self, other: Prices, pool: str, now: float) -> float | None:
        """The first time before `now` at which the pool's price is another one; None: there is none."""
        cuts = {
            0.0,
            *(time for one in (*self.of(pool), *other.of(pool)) for time in (one.since, _end(one))),
        }
        for time in sorted(cut for cut in cuts if cut < now):
            mine, others = self.at(pool, time), other.at(pool, time)
            if _same(mine) != _same(others):
                return time
        return None

    def of(self, pool: str) -> Iterator[Price]:
        """All prices of the pool, in order of time."""
        if pool in self.book.pools:
            yield from self.book.pools[pool]
            return
        changes = self.policy.get(pool, ())
        for index, (since, nanos) in enumerate(changes):
            until = changes[index + 1][0] if index + 1 < len(changes) else None
            yield Price(since=since, until=until, accelerator=nanos, worker=nanos, unpriced=not nanos)


def quantity(ask: Resources, workers: int) -> Quantity:
    """What this many workers with this request hold."""
    return Quantity(
        workers * ask.accelerators * ask.share, workers * ask.milli_cpus, workers * ask.memory, workers
    )  # fmt: skip


def amount(nanos: int, microseconds: int) -> int:
    """Millionths for this time at a price for an hour in billionths, rounded half up."""
    whole = HOUR * (NANO // MICRO)
    return (2 * nanos * microseconds + whole) // (2 * whole)


def family_of(book: PriceBook, spec: JobSpec, user: str) -> str:
    """The model family of a job: its tag `family`, else the book's first rule that matches, else its name."""
    return spec.tags.get("family") or _matched(book.families, spec, user) or spec.name


def environment_of(book: PriceBook, spec: JobSpec, user: str) -> str:
    """The environment of a job: its tag `environment`, else the book's first rule that matches, else ""."""
    return spec.tags.get("environment") or _matched(book.environments, spec, user)


def _matched(rules: tuple[Match, ...], spec: JobSpec, user: str) -> str:
    for rule in rules:
        pairs = ((spec.name, rule.job), (spec.project, rule.project), (spec.queue, rule.queue), (user, rule.user))
        if all(fnmatchcase(value, pattern) for value, pattern in pairs):
            return rule.name
    return ""


def _rate(price: Price, held: Quantity, list_price: bool = False) -> int:
    """Billionths for an hour of this quantity."""
    accelerator = price.accelerator or 0
    if list_price and price.list_accelerator is not None:
        accelerator = price.list_accelerator
    total = (accelerator * held.accelerators + (price.cpu or 0) * held.cpus + WHOLE // 2) // WHOLE
    total += ((price.memory or 0) * held.memory + GB // 2) // GB
    return total + ((price.worker or 0) * held.workers if not held.accelerators else 0)


def _priced(price: Price, held: Quantity, begin: int, end: int) -> Iterator[Span]:
    if price.unpriced:
        yield Span(begin, end, None, None, None)
        return
    full, listed = _rate(price, held), _rate(price, held, list_price=True)
    if not price.off_peak:
        yield Span(begin, end, full, listed, price)
        return
    quiet = (full * price.off_peak_share + WHOLE // 2) // WHOLE
    at = begin
    while at < end:
        time = at / SECOND
        starts = opens(price.off_peak, time)
        cheap = starts <= time
        until = min(end, max(at + 1, _micros(open_until(price.off_peak, time) if cheap else starts)))
        yield Span(at, until, quiet if cheap else full, listed, price)
        at = until


def _same(price: Price | None) -> Price | None:
    """What matters for a charge."""
    plain = {"since": 0.0, "until": None, "capacity": None, "term": None, "upfront": 0, "source": ""}
    return price.model_copy(update=plain) if price is not None else None


def _end(price: Price) -> float:
    return inf if price.until is None else price.until


def _micros(time: float) -> int:
    return round(time * SECOND) if time != inf else 2**62
