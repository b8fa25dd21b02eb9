"""A price book is read as strictly as a job file: every mistake at once, with what to do."""

from __future__ import annotations

from datetime import datetime
from zoneinfo import ZoneInfo

import pytest

from muster.core.errors import SpecError
from muster.core.money import NANO
from muster.core.prices import Prices, Quantity
from muster.cost.price_file import parse_prices

BERLIN = ZoneInfo("Europe/Berlin")


def problems(text: str) -> dict[str, str]:
    with pytest.raises(SpecError) as raised:
        parse_prices(text)
    return {one.where.partition(" (")[0]: f"{one.given}; {one.expected}; {one.hint}" for one in raised.value.problems}


def test_prices_follow_each_other_in_the_books_time_zone() -> None:
    book = parse_prices("""
        timezone: Europe/Berlin
        pools:
          h100:
            - {from: 2026-07-01, accelerator: 2.49}
            - {from: 2026-01-01, accelerator: 2.99, list: 3.90}
    """)
    first, second = book.pools["h100"]
    change = datetime(2026, 7, 1, tzinfo=BERLIN).timestamp()
    assert (first.accelerator, first.list_accelerator, first.until) == (2_990_000_000, 3_900_000_000, change)
    assert (second.accelerator, second.since, second.until) == (2_490_000_000, change, None)


def test_a_price_in_another_currency_is_converted_at_the_rate_of_its_start() -> None:
    book = parse_prices("""
        rates: [{currency: EUR, rate: 1.10}, {currency: EUR, from: 2026-06-01, rate: 1.20}]
        pools:
          a: [{from: 2026-01-01, accelerator: 2 EUR}, {from: 2026-07-01, accelerator: EUR 2}]
    """)
    assert [one.accelerator for one in book.pools["a"]] == [2_200_000_000, 2_400_000_000]


def test_reserved_and_owned_prices_spread_what_was_paid_at_once() -> None:
    book = parse_prices("""
        pools:
          reserved: [{kind: reserved, capacity: 10, accelerator: 1, upfront: 87600, term: 365d}]
          own: [{kind: owned, nodes: 2, accelerators_per_node: 8, purchase: 70080, term: 365d, hosting: 730,
                 power: {kilowatts: 4, price: 0.25}}]
    """)
    assert book.pools["reserved"][0].accelerator == 2 * NANO  # 1, and 87,600 over 87,600 accelerator-hours
    own = book.pools["own"][0]
    assert own.accelerator == (8 + 1 + 1) * NANO // 8  # 70,080 over 8,760 hours, 730 a month, 4 kW at 0.25
    assert own.capacity == 16


def test_the_price_of_a_node_is_shared_by_its_accelerators() -> None:
    book = parse_prices("pools: {a: {node: 16, accelerators_per_node: 8}, b: {node: 0.5}}")
    assert (book.pools["a"][0].accelerator, book.pools["a"][0].worker) == (2 * NANO, None)
    assert (book.pools["b"][0].accelerator, book.pools["b"][0].worker) == (None, NANO // 2)


def test_every_mistake_is_told_at_once() -> None:
    found = problems("""
        currency: dollars
        idle: nobody
        pools:
          gap: [{from: 2026-01-01, until: 2026-02-01, accelerator: 1}, {from: 2026-03-01, accelerator: 2}]
          overlap: [{from: 2026-01-01, until: 2026-04-01, accelerator: 1}, {from: 2026-03-01, accelerator: 2}]
          twice: [{accelerator: 1}, {accelerator: 2}]
          negative: [{accelerator: -1}]
          currency: [{accelerator: 2 GBP}]
          nothing: [{kind: spot}]
          typo: [{accelrator: 2}]
          owned: [{kind: owned, purchase: 100}]
          upfront: [{kind: on_demand, accelerator: 1, upfront: 10}]
          hours: [{accelerator: 1, off_peak: {hours: often, share: 200%}}]
    """)
    assert "USD" in found["currency"] or "three letters" in found["currency"]
    assert "platform" in found["idle"]
    assert "no price from 2026-02-01 to 2026-03-01" in found["pools.gap[0]"]
    assert "with another one from 2026-03-01 on" in found["pools.overlap[0]"]
    assert "one price at a time" in found["pools.twice[0]"]
    assert "0 or more" in found["pools.negative[0].accelerator"]
    assert "rates" in found["pools.currency[0].accelerator"]
    assert "unpriced: yes" in found["pools.nothing[0]"]
    assert "accelerator" in found["pools.typo[0].accelrator"]
    assert "lifetime" in found["pools.owned[0].term"]
    assert "capacity" in found["pools.upfront[0].upfront"]
    assert {"pools.hours[0].off_peak.hours", "pools.hours[0].off_peak.share"} <= set(found)


def test_a_gap_can_be_stated() -> None:
    book = parse_prices("""
        pools:
          a: [{accelerator: 1, until: 2026-02-01}, {from: 2026-02-01, unpriced: yes}, {from: 2026-03-01, cpu: 2}]
    """)
    assert [one.unpriced for one in book.pools["a"]] == [False, True, False]


@pytest.mark.parametrize("text", ["", "[]", "pools: 3", "pools: {a: 3}", "pools: {a: [3]}", "\x00", "rates: {}"])
def test_what_is_no_book_is_refused(text: str) -> None:
    with pytest.raises(SpecError) as raised:
        parse_prices(text)
    assert raised.value.problems


def test_parts_of_an_accelerator_cost_their_part() -> None:
    prices = Prices(parse_prices("pools: {a: {accelerator: 4, cpu: 0.1, memory: 0.01}}"), {})
    half = prices.hourly("a", Quantity(accelerators=500, cpus=2000, memory=10 * 10**9, workers=1), 0.0)
    assert half == 2_000_000 + 200_000 + 100_000
    assert prices.hourly("b", Quantity(1000), 0.0) is None
