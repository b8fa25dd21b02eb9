"""The scheduler and the price book: the cheapest pool first, at the price of the hour, and again when prices change."""

from __future__ import annotations

from muster.core.entities.price_book import PricesSet
from muster.core.prices import Price
from muster.core.rules import DAYS, PoolRules, Preemption, Rules, Window
from muster.sched.describe import describe
from muster.sched.explain import hourly
from muster.sched.offers import offers, run_estimate
from muster.sched.pool_access import PoolAccess
from muster.sched.snapshot import take
from scheduler_kit import SchedulerLoop
from streams import board_agrees, plan_is_sound

NIGHT = (Window(days=tuple(DAYS), start=20 * 3600, end=6 * 3600),)


def book(**prices: Price) -> PricesSet:
    pools = {name: [one.model_dump(mode="json")] for name, one in prices.items()}
    return PricesSet({"version": 1, "pools": pools})


def two_pools(rules: Rules | None = None) -> SchedulerLoop:
    calm = Rules(preemption=Preemption(enabled=False)) if rules is None else rules
    loop = SchedulerLoop(calm, pools={"a": False, "b": False}, checks=[plan_is_sound, board_agrees])
    for pool in ("a", "b"):
        loop.nodes(2, gpus=2, pool=pool, prefix=pool)
    return loop


def test_the_book_goes_before_the_policy_and_a_change_holds_from_the_next_round_on() -> None:
    loop = two_pools(Rules(preemption=Preemption(enabled=False), pools={"a": PoolRules(price=1.0)}))
    loop.event("prices.set", book=book(a=Price(accelerator=3 * 10**9), b=Price(accelerator=2 * 10**9)).book)
    loop.submit("first", 100, gpus=2)
    loop.run(until=1.0)
    assert loop.sits("first") == ("b0",)
    assert hourly(loop.state, loop.job("first"), "a", loop.now) == 6.0
    loop.event("prices.set", book=book(a=Price(accelerator=10**9), b=Price(accelerator=2 * 10**9)).book)
    loop.submit("second", 100, gpus=2)
    loop.run(until=2.0)
    assert loop.sits("second") == ("a0",)
    (line,) = [one for section in describe(loop.state.rules, [], ["a"]) if section.name == "a" for one in section.lines]
    assert line == "What an hour costs is in the price book."


def test_the_board_follows_the_hours_with_a_lower_price() -> None:
    cheap_at_night = Price(accelerator=3 * 10**9, off_peak=NIGHT, off_peak_share=500)
    loop = two_pools()
    loop.event("prices.set", book=book(a=cheap_at_night, b=Price(accelerator=2 * 10**9)).book)
    for name in ("x", "y"):
        loop.submit(name, 3600, gpus=2)
    loop.run(until=1.0)  # midnight of 1970: 1.50 in pool a
    assert loop.sits("x")[0].startswith("a")
    assert loop.board.pools.prices_change() == 6 * 3600.0
    loop.run(until=6 * 3600.0 + 1)
    loop.submit("day", 100, gpus=2)
    loop.run(until=6 * 3600.0 + 2)
    assert loop.sits("day")[0].startswith("b")


def test_a_worker_is_priced_as_it_is_and_a_missing_price_is_said() -> None:
    loop = two_pools()
    loop.event("prices.set", book=book(a=Price(accelerator=10**9, cpu=10**9)).book)
    loop.submit("wide", 100, gpus=1, cpus=4)
    loop.submit("bound", 100, gpus=1, pool="b")
    access = PoolAccess.of(loop.state)
    assert (access.price(loop.job("wide"), "a"), access.price(loop.job("wide"), "b")) == (5_000_000, 0)
    assert run_estimate(loop.state, loop.job("bound"), loop.now)["per_hour"] is None
    shot = take(loop.state, loop.board, loop.now, ["wide"])
    told = {
        one.pool: one.to_dict() for one in offers(shot, next(one for one in shot.jobs if one.id == loop.job("wide").id))
    }
    assert (told["a"]["per_hour"], told["a"]["priced"], told["b"]["priced"]) == (5.0, True, False)
