"""Money in a simulation: charges add up, capacity that nobody used is apart, and a missing price is never zero."""

from __future__ import annotations

from dataclasses import replace

import pytest

from muster.core.errors import SpecError
from muster.core.prices import Price, PriceBook
from muster.core.rules import PoolRules, Rules
from muster.cost.budget_file import parse_budgets
from muster.sim.model import Cluster, Costs, Money, PoolShape, Setup, TraceJob
from muster.sim.money import at_one_time
from muster.sim.report import ReportContent, report
from muster.sim.run import replay
from muster.sim.summary import summarise
from muster.sim.table import rows

CLUSTER = Cluster((PoolShape("gpu", 2, 4),))
JOBS = [TraceJob(str(n), 60.0 * n, 1800.0, 1, 4, user="ada") for n in range(6)]
EACH = 4 * 0.5 * 2_000_000  # of a job


def book(**fields: object) -> PriceBook:
    price = Price.model_validate({"accelerator": 2 * 10**9, **fields})
    return PriceBook(version=1, currency="EUR", pools={"gpu": (price,)})


def money(prices: PriceBook | None = None, rules: Rules | None = None, costs: Costs | None = None) -> Money | None:
    setup = Setup("fifo", rules or Rules(), CLUSTER, costs or Costs(), prices=prices)
    return replay(JOBS, setup).money


def test_charges_of_all_jobs_and_what_nobody_used_are_the_price_of_the_capacity() -> None:
    assert money(book()) == Money("EUR", charged=round(6 * EACH))
    found = money(book(kind="owned", capacity=8))
    assert found is not None
    assert found.charged == 6 * EACH
    seconds = 300.0 + 3 * 1800.0 - 240.0  # from the first submission to the last end: the second node starts at 60 s
    assert found.charged + found.idle == pytest.approx(8 * (3 * 1800.0 + 60.0) / 3600 * 2_000_000, abs=5), seconds
    assert money(book(kind="owned")) == Money("EUR", charged=round(6 * EACH)), "no capacity is stated"


def test_prices_of_the_policy_count_and_a_missing_price_is_counted_apart() -> None:
    assert money() is None
    assert money(rules=Rules(pools={"gpu": PoolRules(price=2.0)})) == Money("USD", charged=round(6 * EACH))
    found = money(PriceBook(version=1, pools={"other": (Price(accelerator=1),)}))
    assert found == Money("USD", unpriced=pytest.approx(12.0))


def test_the_platform_pays_what_failures_took() -> None:
    found = money(book(), costs=Costs(node_failures=40.0, repair=60.0, seed=3))
    assert found is not None
    assert found.platform > 0
    assert found.charged == pytest.approx(6 * EACH, rel=0.3)


def test_a_book_is_taken_at_one_time() -> None:
    old, new = Price(accelerator=1, until=100.0), Price(accelerator=2, since=100.0, until=200.0)
    there = PriceBook(pools={"gpu": (old, new)})
    assert at_one_time(there, 150.0).pools["gpu"] == (Price(accelerator=2),)
    assert at_one_time(there, 250.0).pools["gpu"][0].unpriced


def test_every_policy_has_its_money_in_the_table_and_in_the_report() -> None:
    results = [replay(JOBS, Setup(name, Rules(), CLUSTER, prices=book())) for name in ("one", "two")]
    summaries = [summarise(result) for result in results]
    found = {row.label: row.cells for row in rows(summaries)}
    assert found["charged to projects, EUR"] == ("24.00", "24.00")
    assert found["cost of a finished job"] == ("4.00", "4.00")
    assert "hours without a price" not in found
    page = report(ReportContent("t", {}, [], [], results, summaries))
    assert "charged to projects, EUR" in page
    assert page.count("24.00") == 2


def test_budgets_refuse_and_stop_jobs_as_on_a_server() -> None:
    limit = parse_budgets("budgets: {lab: {amount: 10 EUR}}", "EUR", source="budgets")
    setup = Setup("fifo", Rules(), CLUSTER, prices=book(), budgets=limit)
    found = replay(JOBS, setup)
    assert sum("budget 'lab'" in job.refused for job in found.jobs) == 5, "each reserves 8 EUR, for an hour"
    assert found.money == Money("EUR", charged=round(EACH))
    stop = parse_budgets("budgets: {lab: {amount: 10, mode: stop}}", "EUR", source="budgets")
    long = [TraceJob("long", 0.0, 3 * 3600.0, 1, 4, user="ada")]
    spent = replay(long, replace(setup, budgets=stop)).money
    assert spent is not None
    assert 8_000_000 < spent.charged <= 10_000_000


def test_a_file_of_budgets_has_every_mistake_told() -> None:
    text = """
        budgets:
          a: {amount: -1, projct: x}
          b: {amount: 5 GBP, from: 2026-11-01}
          "c d": {amount: 0, mode: often, per: year}
    """
    with pytest.raises(SpecError) as raised:
        parse_budgets(text, "USD", source="budgets")
    assert len(raised.value.problems) == 8, [str(one) for one in raised.value.problems]
