"""What a run will cost before it runs: run times, hours with other prices, and interruptions."""

from __future__ import annotations

import pytest

from muster.control.spot_history import spot_risks
from muster.core.history import History, groups_of
from muster.core.job import Attempt, Worker
from muster.core.prices import Price, PriceBook, Prices, Quantity
from muster.core.reasons import reason
from muster.core.rules import DAYS, Window
from muster.core.seat import Seat
from muster.core.spec import JobSpec
from muster.cost.estimate import (
    SpotRisk,
    at_size,
    cost_between,
    quiet_start,
    run_time,
    with_interruptions,
)

MONDAY = 345_600.0
NIGHT = (Window(days=tuple(DAYS), start=20 * 3600, end=6 * 3600),)
PRICES = Prices(
    PriceBook(
        version=1,
        pools={
            "a": (Price(accelerator=2 * 10**9, off_peak=NIGHT, off_peak_share=500),),
            "short": (Price(accelerator=10**9, until=MONDAY + 3600.0),),
        },
    ),
    {"b": ((0.0, 10**9),)},
)
ONE = Quantity(1000, 0, 0, 1)


def spec(**fields: object) -> JobSpec:
    return JobSpec.model_validate({"name": "gpt", "run": "x", **fields})


def test_a_run_time_is_learnt_else_limited_else_assumed() -> None:
    history = History()
    assert run_time(history, "ada", spec(), 3600.0) == (3600.0, None, "assumed")
    assert run_time(history, "ada", spec(max_duration=1800.0), 3600.0) == (1800.0, 1800.0, "max_duration")
    for _ in range(40):
        history.observe(groups_of("ada", spec()), 1000.0)
    p50, p90, source = run_time(history, "ada", spec(), 3600.0)
    assert source == "learnt"
    assert 512 <= p50 <= (p90 or 0.0) <= 2048
    assert run_time(history, "ada", spec(max_duration=60.0), 3600.0)[:2] == (60.0, 60.0)
    assert at_size(history, "ada", spec(num_nodes=4), 1) is not None
    assert at_size(history, "ada", spec(num_nodes=4), 2) is None, "nobody has run it on two nodes"


def test_hours_with_a_lower_price_and_hours_without_any() -> None:
    assert cost_between(PRICES, "a", ONE, MONDAY + 18 * 3600, 4 * 3600.0) == 2 * 2_000_000 + 2 * 1_000_000
    assert cost_between(PRICES, "b", ONE, MONDAY, 1800.0) == 500_000
    assert cost_between(PRICES, "short", ONE, MONDAY, 7200.0) is None, "the second hour has no price: never zero"
    assert cost_between(PRICES, "unknown", ONE, MONDAY, 1.0) is None
    assert quiet_start(PRICES, "a", MONDAY + 10 * 3600) == MONDAY + 20 * 3600
    assert quiet_start(PRICES, "a", MONDAY + 21 * 3600) is None
    assert quiet_start(PRICES, "b", MONDAY) is None


def test_interruptions_cost_work_that_is_done_again() -> None:
    risk = SpotRisk(1, 100.0)
    assert with_interruptions(SpotRisk(0, 100.0), 8, 3600.0, None) == 3600.0
    saving = with_interruptions(risk, 1, 36_000.0, 3600.0)
    assert saving == pytest.approx(36_000 / (1 - (1800 + 300) / 360_000))
    assert with_interruptions(risk, 1, 36_000.0, None) > saving > 36_000.0
    assert with_interruptions(SpotRisk(1000, 10.0), 64, 36_000.0, 60.0) == 50 * 36_000.0, "bounded"
    assert risk.chance(1, 360_000.0) == pytest.approx(1 - 2.718281828**-1)
    assert not SpotRisk(0, 5.0).known


def test_the_price_of_a_pool_changes_at_its_times_and_at_its_hours() -> None:
    assert PRICES.next_change("a", MONDAY + 10 * 3600) == MONDAY + 20 * 3600
    assert PRICES.next_change("a", MONDAY + 21 * 3600) == MONDAY + 30 * 3600
    assert PRICES.next_change("short", MONDAY) == MONDAY + 3600.0
    assert PRICES.next_change("b", 1.0) == float("inf")


def test_only_machines_that_went_away_count_as_interruptions() -> None:
    def attempt(pool: str, code: str, hours: float, nodes: int = 2) -> Attempt:
        workers = [Worker(Seat(f"n{n}", ())) for n in range(nodes)]
        return Attempt(1, 0.0, workers, 1.0, hours * 3600, "failed", reason(code), pool=pool)

    found = spot_risks(
        [
            attempt("spot", "spot_notice", 5.0),
            attempt("spot", "node_lost", 5.0),
            attempt("spot", "preempted", 5.0),
            attempt("spot", "user_error", 5.0),
            attempt("own", "node_lost", 5.0),
        ],
        ["spot"],
        1e9,
    )
    assert found == {"spot": SpotRisk(2, 40.0)}
