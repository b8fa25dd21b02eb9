"""Sets the price book, and corrects the charges of the past whose prices it changes."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from muster.core.cost_events import AttemptCharged, CostCorrected, Line
from muster.core.entities.price_book import PRICE_BOOKS, PricesSet, book_of, prices_of
from muster.core.errors import Invalid
from muster.core.event import SYSTEM, Event
from muster.core.prices import PriceBook, Prices, Quantity
from muster.core.state import State
from muster.cost.charge import PLATFORM, charge_lines, totals
from muster.cost.price_file import parse_prices
from muster.store.base import Entry, Proposal

WHY: Final = "the price book changed"


@dataclass(frozen=True, slots=True)
class BookChange:
    """A book that would be in force, and from when on the prices of which pools would differ in the past."""

    book: PriceBook
    changed: dict[str, float]
    unknown: tuple[str, ...]  # pools of the book that this server does not have
    unpriced: tuple[str, ...]  # pools of this server that have no price now


def compare_books(state: State, text: str, now: float, source: str = "The price book") -> BookChange:
    """Raises SpecError with every mistake, and Invalid for another currency than the one of the book in force."""
    book, before = parse_prices(text, source=source), prices_of(state)
    old = book_of(state)
    if old.version and book.currency != old.currency:
        raise Invalid(
            f"The book in force is in {old.currency}, and {source} is in {book.currency}.",
            f"Keep `currency: {old.currency}`, and write prices in {book.currency} with a rate: amounts of two "
            "currencies can't be added.",
        )
    book = book.model_copy(update={"version": old.version + 1})
    after = Prices(book, before.policy)
    found = {pool: after.differ_from(before, pool, now) for pool in sorted(after.pools | before.pools)}
    changed = {pool: since for pool, since in found.items() if since is not None}
    unknown = tuple(sorted(set(book.pools) - set(state.pools)))
    unpriced = tuple(sorted(pool for pool in state.pools if after.at(pool, now) is None))
    return BookChange(book, changed, unknown, unpriced)


def set_prices(
    text: str,
    actor: str,
    now: float,
    charged: Collection[str] = (),
    *,
    correct: bool = False,
    source: str = "The price book",
) -> Proposal:
    """Sets the book if it differs from the one in force.

    `charged`: pools with charges. A book that changes their prices in the past is refused, unless `correct`: then the
    charges are corrected.
    """

    def propose(state: State) -> Entry:
        change, in_force = compare_books(state, text, now, source), PRICE_BOOKS.all(state).get("")
        if in_force is not None and in_force.text == text:
            return Entry()
        past = {pool: since for pool, since in change.changed.items() if pool in charged}
        if past and not correct:
            pools = ", ".join(past)
            raise Invalid(
                f"{source} changes prices of time that is charged already, in {pools}.",
                f"Keep the price of before and give the new one a `from`, such as `from: {_today(now)}`. "
                "If the past was priced wrongly, `--correct` corrects its charges.",
            )
        doc = change.book.model_dump(mode="json", exclude_defaults=True)
        return Entry([Event(PricesSet(doc, text, past), max(now, state.time), actor)])

    return propose


def corrections(
    charges: Iterable[tuple[Event, int, int, list[Line]]], prices: Prices, now: float, users: Mapping[str, str]
) -> Iterator[Event]:
    """The corrections of charges whose lines are others at these prices.

    Each charge comes with what it stands at: the amount, the part of the platform, and its lines. `users`: by job.
    """
    for event, amount, platform, standing in charges:
        data = event.data
        assert isinstance(data, AttemptCharged)
        if not standing:
            continue
        shares = tuple([(int(line[0]), int(line[1])) for line in standing if line[4] == PLATFORM])
        begin, end = int(standing[0][0]), int(standing[-1][1])
        lines = list(charge_lines(prices, data.pool, Quantity(*data.held), begin, end, shares))
        if lines == standing:
            continue
        total, paid = totals(lines)
        fixed = CostCorrected(
            event.seq, total - paid - amount, paid - platform, prices.book.currency, prices.book.version, data.held,
            lines, WHY, users.get(event.job, ""), data.family, data.environment,
        )  # fmt: skip
        yield Event(fixed, now, SYSTEM, event.project, event.job, event.attempt)


def _today(now: float) -> str:
    return datetime.fromtimestamp(now, UTC).date().isoformat()
