"""The cost ledger in the database: its sums are those of its events, after any restart, and days are charged once."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from sqlalchemy import func, select

from muster.control.costs import CostLedger
from muster.control.daily_costs import DailyCosts
from muster.control.follow import Follower
from muster.control.goodput import GoodputLedger
from muster.control.prices import set_prices
from muster.core.cost_events import AttemptCharged, CostCorrected
from muster.core.entities.price_book import prices_of
from muster.core.errors import Invalid, SpecError
from muster.core.event import Event
from muster.core.reasons import reason
from muster.cost.charge import charge
from muster.store import cost_tables as tables
from muster.store.base import Entry, EventFilter
from muster.track.cost_rows import charged_pools
from record_kit import Record
from scheduler_kit import node_event

DAY = 86_400
TABLES = ("cost_charges", "cost_days", "cost_months", "cost_runs", "cost_classes", "cost_class_months")
BOOK = "pools: {main: [{cpu: 3.6}]}\n"  # 1,000 millionths a second for a CPU
DEARER = "pools: {main: [{cpu: 7.2}]}\n"


class Costs:
    """The follower of a server, which can be killed and started again."""

    def __init__(self, record: Record) -> None:
        self.record = record
        record.events(node_event("n0", 4, 64))
        self.restart()

    def restart(self) -> None:
        goodput = GoodputLedger(self.record.store, self.record.track, lambda: self.record.moment[0])
        ledger = CostLedger(self.record.store, self.record.track, goodput)
        self.follower = Follower("costs", ledger.fold, self.record.store, self.record.commit)
        self.daily = DailyCosts(self.record.track, self.record.commit, self, lambda: True, self.follower.reach)

    def now(self) -> float:
        return self.record.moment[0]

    def apply(self, text: str, correct: bool = False) -> None:
        self.follower.reach()
        with self.record.track.db.reading() as connection:
            charged = charged_pools(connection)
        proposal = set_prices(text, "ada", self.now(), charged, correct=correct)
        self.record.commit.submit(proposal).result()

    def run(self, seconds: float, cpus: int = 2) -> str:
        """A job that ends well after so many seconds."""
        record = self.record
        job = record.submit("x", resources={"cpus": cpus})
        record.start(job)
        record.moment[0] += seconds
        state = record.store.state()
        made = charge(state, state.jobs[job], "succeeded", reason("completed"), self.now())
        number = state.jobs[job].attempt.number
        project = state.jobs[job].project
        record.end(job, 1)
        if made is not None:
            record.commit.submit(
                lambda state: Entry([Event(made, self.now(), "muster", project, job, number)])
            ).result()
        return job

    def charged(self) -> int:
        """By the events."""
        events = [
            event.data
            for kind in ("attempt.charged", "cost.corrected")
            for event in self.record.store.events(EventFilter(kind=kind, limit=1000))
        ]
        return sum(one.amount + one.platform for one in events if isinstance(one, AttemptCharged | CostCorrected))

    def sums(self) -> dict[str, int]:
        self.follower.reach()
        self.follower.reach()  # corrections are events, which follow the book
        names = TABLES
        with self.record.track.db.reading() as connection:
            made = {name: connection.scalar(select(func.sum(getattr(tables, name).c.amount))) for name in names}
        return {name: int(value or 0) for name, value in made.items()}


@pytest.fixture
def costs(record: Record) -> Costs:
    return Costs(record)


def test_every_table_has_the_sum_of_the_events_over_restarts_and_corrections(costs: Costs) -> None:
    costs.run(10)
    assert costs.charged() == 0, "nothing has a price yet"
    costs.apply(BOOK)
    costs.run(100)
    costs.restart()
    costs.run(50, cpus=1)
    assert set(costs.sums().values()) == {costs.charged()} != {0}
    before = costs.charged()
    with pytest.raises(Invalid, match="charged already"):
        costs.apply(DEARER)
    costs.apply(DEARER, correct=True)
    costs.restart()
    found = costs.sums()
    assert set(found.values()) == {costs.charged()}
    assert costs.charged() == pytest.approx(2 * before, abs=4)
    costs.apply(DEARER, correct=True)
    assert costs.sums() == found, "the same book changes nothing"


def test_a_price_from_now_on_leaves_what_was_charged(costs: Costs) -> None:
    costs.apply(BOOK)
    costs.run(100)
    before = costs.sums()
    costs.apply("pools: {main: [{cpu: 3.6}, {from: 2100-01-01, cpu: 9}]}")
    assert costs.sums() == before


def test_the_rows_can_be_made_again_from_the_log(costs: Costs) -> None:
    costs.apply(BOOK)
    for seconds in (5, 3 * DAY, 7):
        costs.run(seconds)
    before = costs.sums()
    record = costs.record
    record.track.db.write(_empty)
    record.commit.submit(lambda state: Entry(marks={"costs": 0})).result()
    costs.restart()
    assert costs.sums() == before


def test_idle_capacity_is_charged_once_for_each_day_by_who_used_the_pool(costs: Costs) -> None:
    costs.apply("idle: used\nstorage: 1\npools: {main: [{kind: owned, capacity: 4, accelerator: 1}]}")
    costs.record.moment[0] += 2 * DAY
    costs.daily.charge_days()
    costs.restart()
    costs.daily.charge_days()
    days = Counter[str]()
    amounts: dict[str, int] = {}
    for event in costs.record.store.events(EventFilter(kind="pool.idle", limit=100)):
        days[event.data.day] += 1
        amounts = event.data.shares
    assert set(days.values()) == {1}
    assert amounts == {"": 4 * 24 * 1_000_000}, "nobody used it, so that the platform pays"
    assert costs.sums()["cost_days"] == sum(days.values()) * 4 * 24 * 1_000_000


def test_a_book_in_another_currency_and_one_with_mistakes_change_nothing(costs: Costs) -> None:
    costs.apply(BOOK)
    for text, error in (("currency: EUR\n" + BOOK, Invalid), ("pools: {main: [{cpu: -1}]}", SpecError)):
        with pytest.raises(error):
            costs.apply(text)
    assert prices_of(costs.record.store.state()).book.version == 1


def _empty(connection: Any) -> None:
    for name in TABLES:
        connection.execute(getattr(tables, name).delete())
