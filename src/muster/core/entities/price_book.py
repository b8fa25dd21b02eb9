"""The price book in force, and the prices that the policy gave pools over time."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final
from zoneinfo import ZoneInfo

from muster.core.entities.base import EntityType
from muster.core.entities.budget import commit_again
from muster.core.money import NANO
from muster.core.payload import Doc, Payload, payload
from muster.core.period import zone_of
from muster.core.prices import PriceBook, Prices
from muster.core.rules import Rules

if TYPE_CHECKING:
    from muster.core.event import Event
    from muster.core.state_data import Changes, State

_EMPTY: Final = PriceBook()


@dataclass(frozen=True, slots=True)
class BookInForce:
    """The book, and the text that it was parsed from."""

    book: PriceBook
    text: str = ""
    set_at: float = 0.0
    first_at: float = 0.0  # when the first book was set

    def __deepcopy__(self, memo: object) -> BookInForce:
        return self  # forecasts copy the state many times, and it never changes


@dataclass(frozen=True, slots=True)
class PolicyPrices:
    """The prices of one pool by the policy: from when, and billionths for an hour; 0 stands for none."""

    pool: str
    changes: tuple[tuple[float, int], ...]


def _book(doc: Doc) -> BookInForce:
    return BookInForce(PriceBook.model_validate(doc["book"]), doc["text"], doc["set_at"], doc["first_at"])


def _policy(doc: Doc) -> PolicyPrices:
    return PolicyPrices(doc["pool"], tuple([(since, nanos) for since, nanos in doc["changes"]]))


PRICE_BOOKS = EntityType("price_book", _book)
POLICY_PRICES = EntityType("policy_prices", _policy)


@payload("prices.set")
class PricesSet(Payload):
    """The price book was set. `text` is what it was parsed from.

    `changed`: pool → from when on its prices differ from those before; charges of that time are corrected.
    """

    book: Doc | PriceBook  # JSON; in a simulation, where nothing is encoded, the object itself
    text: str = ""
    changed: dict[str, float] = field(default_factory=dict)

    def fold(self, state: State, event: Event, changes: Changes) -> None:
        book = PriceBook.model_validate(self.book)
        known = PRICE_BOOKS.all(state).get("")
        first = known.first_at if known is not None else event.time
        PRICE_BOOKS.put(state, "", BookInForce(book, self.text, event.time, first), changes)
        commit_again(state, book, changes)
        state.journal.note("entity", "prices")


def book_of(state: State) -> PriceBook:
    found = PRICE_BOOKS.all(state).get("")
    return found.book if found is not None else _EMPTY


def priced(state: State) -> bool:
    """Whether anything may have a price."""
    return bool(PRICE_BOOKS.all(state) or POLICY_PRICES.all(state))


def book_zone(state: State) -> ZoneInfo:
    """The time zone of days, weeks and months."""
    return zone_of(book_of(state).timezone)


def prices_of(state: State) -> Prices:
    """The prices in force, and those before."""
    return Prices(book_of(state), {name: one.changes for name, one in POLICY_PRICES.all(state).items()})


def note_policy_prices(state: State, rules: Rules, time: float, changes: Changes) -> None:
    """Remembers from when on the pools have these prices, so that what was held before is charged as it was."""
    known = POLICY_PRICES.all(state)
    for pool in sorted({*rules.pools, *known}):
        nanos = round(rules.pool(pool).price * NANO)
        before = known[pool].changes if pool in known else ()
        if nanos != (before[-1][1] if before else 0):
            # A change at the same time replaces the one before, so that each time has one price.
            kept = tuple([one for one in before if one[0] < time])
            POLICY_PRICES.put(state, pool, PolicyPrices(pool, (*kept, (time, nanos))), changes)
