"""The price book: get the prices in force, and set another book."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from muster.api.cost import PricesAnswer, PricesView, PriceView
from muster.control.prices import compare_books, set_prices
from muster.core.document import MAX_BYTES
from muster.core.entities.price_book import PRICE_BOOKS, prices_of
from muster.core.money import MICRO, NANO
from muster.core.policy_units import format_window
from muster.core.prices import Price, Prices
from muster.core.state import State
from muster.server.context import Caller, Leading, Tracked
from muster.server.typed_routes import needs, typed_router
from muster.track.cost_rows import charged_pools

router = typed_router(prefix="/v1/cost", tags=["cost"])


class PricesBody(BaseModel):
    model_config = ConfigDict(extra="forbid")

    text: str = Field(max_length=MAX_BYTES, description="the whole price book, as YAML")
    dry_run: bool = Field(False, description="only check it, and say what would change")
    correct: bool = Field(False, description="correct charges of the past whose prices it changes")
    source: str = Field("The price book", max_length=1000, description="what errors should call it")


@router.get("/prices", openapi_extra=needs("anyone"))
def get_prices(leader: Leading, caller: Caller) -> PricesView:
    """The prices of all pools, those of the past and those to come among them. The text is for administrators."""
    now = leader.clock.now()
    return leader.look(lambda state: _view(state, prices_of(state), now, _text(state) if caller.superuser else ""))


@router.put("/prices", openapi_extra=needs("superuser"))
def put_prices(body: PricesBody, leader: Leading, track: Tracked, caller: Caller) -> PricesAnswer:
    """Sets a price book, all of it or nothing. One that changes what is charged already needs `correct`."""
    caller.need_superuser()
    now = leader.clock.now()
    change = leader.look(lambda state: compare_books(state, body.text, now, body.source))
    leader.cost_follower.reach()
    with track.db.reading() as connection:
        charged = charged_pools(connection)
    if not body.dry_run:
        proposal = set_prices(body.text, caller.user, now, charged, correct=body.correct, source=body.source)
        leader.propose(proposal)

    def look(state: State) -> PricesAnswer:
        prices = Prices(change.book, prices_of(state).policy) if body.dry_run else prices_of(state)
        view = _view(state, prices, now, body.text)
        return {
            **view,
            "applied": not body.dry_run,
            "changed": {pool: since for pool, since in change.changed.items() if pool in charged},
            "unknown": list(change.unknown),
        }

    return leader.look(look)


def _text(state: State) -> str:
    found = PRICE_BOOKS.all(state).get("")
    return found.text if found is not None else ""


def _view(state: State, prices: Prices, now: float, text: str) -> PricesView:
    return {
        "version": prices.book.version,
        "currency": prices.book.currency,
        "timezone": prices.book.timezone,
        "text": text,
        "prices": [_price(pool, one, now) for pool in sorted(prices.pools) for one in prices.of(pool)],
        "unpriced": sorted(pool for pool in state.pools if prices.at(pool, now) is None),
    }


def _price(pool: str, one: Price, now: float) -> PriceView:
    windows = ", ".join(format_window(window) for window in one.off_peak)
    return {
        "pool": pool,
        "since": one.since,
        "until": one.until,
        "kind": "none" if one.unpriced else one.kind,
        "in_force": one.since <= now and (one.until is None or now < one.until),
        "accelerator": _micros(one.accelerator),
        "node": _micros(one.worker),
        "cpu": _micros(one.cpu),
        "memory": _micros(one.memory),
        "off_peak": f"{windows} UTC at {one.off_peak_share / 10:g} %" if one.off_peak else "",
        "capacity": one.capacity,
        "source": one.source,
    }


def _micros(nanos: int | None) -> int | None:
    return None if nanos is None else round(nanos * MICRO / NANO)
