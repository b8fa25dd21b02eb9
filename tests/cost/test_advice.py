"""Each kind of advice: a history that calls for it, with the arithmetic, and a healthy one of which nothing is said."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from muster.core.prices import Price, PriceBook, Prices
from muster.core.rules import DAYS, Window
from muster.cost.advice import ADVICE, advise
from muster.cost.advice.facts import Advice, AdviceFacts, PoolFact, RunFact, SweepFact
from muster.cost.advice.reserve import break_even, duration_curve
from muster.cost.estimate import SpotRisk

MONDAY = 345_600.0 + 2_948 * 7 * 86_400  # midnight, in 2026
GB = 10**9
H100 = PoolFact("h100", "H100", 80 * GB, 4_000_000, "on_demand", slices=4)
L4 = PoolFact("l4", "L4", 24 * GB, 1_000_000, "on_demand")
SPOT = PoolFact("h100-spot", "H100", 80 * GB, 1_000_000, "spot", spot=True)
NIGHT = (Window(days=tuple(DAYS), start=20 * 3600, end=6 * 3600),)
BOOK = PriceBook(
    version=1,
    pools={
        "h100": (Price(accelerator=4 * 10**9, off_peak=NIGHT, off_peak_share=500),),
        "l4": (Price(accelerator=10**9),),
        "h100-spot": (Price(kind="spot", accelerator=10**9),),
    },
)


def run(number: int = 1, **fields: Any) -> RunFact:
    """A run of ten hours on one H100 for 40.00, which uses it well."""
    known: dict[str, Any] = {
        "amount": 40_000_000, "begin": MONDAY + 20 * 3600, "hours": 10.0, "accelerators": 1, "accelerator": "H100",
        "device_use": 0.9, "memory_share": 0.8, "device_memory": 80 * GB,
    }  # fmt: skip
    return RunFact(f"gpt-{number}", "language", "gpt", **{"pool": "h100", **known, **fields})


def facts(*runs: RunFact, **fields: Any) -> AdviceFacts:
    pools = {one.name: one for one in (H100, L4, SPOT)}
    known: dict[str, Any] = {"pools": pools, "risks": {"h100-spot": SpotRisk(10, 1000.0)}}
    return AdviceFacts(MONDAY, 30.0, Prices(BOOK, {}), runs, **{**known, **fields})


def said(found: AdviceFacts, kind: str) -> list[Advice]:
    return advise(found, kind)


# --- a healthy history ------------------------------------------------------------------------------------------------
STEADY = replace(H100, demand=((4.0, 24.0), (0.0, 696.0)))  # four accelerators, one day of the month
HEALTHY = facts(
    *(run(number, parent="sweep-9", score=10.0 - number) for number in range(1, 9)),
    run(20, kind="session", idle_share=0.1),
    run(21, save_every=1_340.0, save_seconds=5.0),  # about the best for one failure in 50 hours
    pools={"h100": replace(STEADY, slices=1), "l4": L4},
    sweeps=(SweepFact("sweep-9", "language", running=True),),
    failures=4,
    node_hours=200.0,
    reserve_price=2_000_000,
)


@pytest.mark.parametrize("kind", ADVICE)
def test_nothing_is_said_of_a_healthy_history(kind: str) -> None:
    assert said(HEALTHY, kind) == []


def test_what_saves_most_comes_first() -> None:
    small = run(1, device_use=0.1, memory_share=0.1)
    found = advise(facts(small, run(2, kind="session", idle_share=0.9)))
    assert [one.kind for one in found] == ["idle-session", "right-size"]
    assert found[0].saves >= found[1].saves


# --- right-size -------------------------------------------------------------------------------------------------------
def test_a_part_of_a_device_would_do_and_nobody_has_tried() -> None:
    (one,) = said(
        facts(run(1, device_use=0.15, memory_share=0.2), run(2, device_use=0.25, memory_share=0.2)), "right-size"
    )
    assert (one.confidence, one.saves) == ("untested", 80_000_000 * 3 // 4)  # a quarter of it
    assert "20% of H100" in one.arithmetic
    assert "nobody has tried it" in one.arithmetic
    assert one.command == "muster runs reproduce gpt-2 -o resources.accelerators=H100:0.25"


def test_the_history_of_those_who_did_decides() -> None:
    small = [run(number, device_use=0.1, memory_share=0.1) for number in (1, 2)]
    half = run(3, pool="l4", accelerator="L4", device_memory=24 * GB, amount=20_000_000)
    (one,) = said(facts(*small, half), "right-size")
    assert (one.confidence, one.saves) == ("measured", 40_000_000)
    assert "1 run with it cost 50% of one without" in one.arithmetic
    failed = replace(half, phase="failed")
    others = [each for each in said(facts(*small, failed), "right-size") if "l4" in each.subject]
    assert others == [], "those who did it fared worse"


def test_a_busy_device_with_free_memory_is_replaced_only_if_others_did() -> None:
    busy = run(1, device_use=0.95, memory_share=0.2)
    assert said(facts(busy), "right-size") == []
    tried = run(2, pool="l4", accelerator="L4", amount=30_000_000, device_memory=24 * GB)
    (one,) = said(facts(busy, tried), "right-size")
    assert one.saves == 10_000_000
    assert said(facts(busy, replace(tried, amount=60_000_000)), "right-size") == [], "it took longer and cost more"


def test_too_little_memory_elsewhere_and_unknown_use_are_no_advice() -> None:
    alone = {"h100": replace(H100, slices=1), "l4": L4}
    assert said(facts(run(1, device_use=0.1, memory_share=0.7), pools=alone), "right-size") == []
    assert said(facts(run(1, device_use=None, memory_share=None)), "right-size") == []
    half = {"h100": H100}
    (one,) = said(facts(run(1, device_use=0.1, memory_share=0.3), pools=half), "right-size")
    assert one.command.endswith("-o resources.accelerators=H100:0.5")


# --- spot and off-peak ------------------------------------------------------------------------------------------------
def test_spot_is_advised_with_the_work_that_is_done_again() -> None:
    (one,) = said(facts(run(1, save_every=3600.0)), "spot")
    # An interruption in 100 node-hours costs half an hour and five minutes: 10 h / (1 - 35/6000) = 10.06 h.
    assert one.saves == pytest.approx(40_000_000 - 10_058_676, rel=1e-4)
    assert "10 interruptions in 1,000 node-hours" in one.arithmetic
    assert one.command == "muster runs reproduce gpt-1 -o use_spot=true -o pool=h100-spot"


@pytest.mark.parametrize(
    "change",
    [{"priority": 75}, {"deadline": True}, {"save_every": None}, {"use_spot": True}, {"accelerators": 0}],
)
def test_who_is_urgent_or_does_not_save_is_no_candidate_for_spot(change: dict[str, Any]) -> None:
    assert said(facts(run(1, **{"save_every": 3600.0, **change})), "spot") == []


def test_a_spot_pool_that_nobody_has_used_is_not_advised() -> None:
    assert said(facts(run(1, save_every=3600.0), risks={"h100-spot": SpotRisk(0, 2.0)}), "spot") == []
    often = {"h100-spot": SpotRisk(3000, 1000.0)}
    assert said(facts(run(1, save_every=3600.0), risks=often), "spot") == [], "it would be interrupted all the time"


def test_who_may_wait_is_told_of_the_hours_with_a_lower_price() -> None:
    day = run(1, begin=MONDAY + 10 * 3600, hours=8.0, amount=32_000_000)
    (one,) = said(facts(day), "off-peak")
    assert one.saves == 16_000_000
    assert "waited 10h more" in one.arithmetic
    assert "no quiet hours" in one.arithmetic
    quiet = {"h100": replace(H100, quiet=True)}
    (one,) = said(facts(day, pools=quiet), "off-peak")
    assert one.command == "muster runs reproduce gpt-1 -o off_peak=true"
    for change in ({"begin": MONDAY + 21 * 3600}, {"off_peak": True}, {"deadline": True}, {"hours": 100.0}):
        assert said(facts(replace(day, **change)), "off-peak") == []


# --- reserve or buy ---------------------------------------------------------------------------------------------------
def test_the_duration_curve_has_the_hours_of_each_accelerator() -> None:
    assert duration_curve([(2.5, 365.0), (0.0, 365.0)]) == pytest.approx([365.0, 365.0, 182.5])
    assert duration_curve([]) == []
    assert break_even(4.0, 2.0) == 365.0


def test_each_accelerator_that_is_used_past_the_break_even_is_reserved() -> None:
    busy = replace(H100, demand=((3.0, 500.0), (1.0, 230.0)))  # hours: 730, 500, 500
    found = facts(pools={"h100": busy}, reserve_price=2_400_000)  # breaks even at 438 hours
    (one,) = said(found, "reserve")
    assert one.subject == "pool h100: 3 accelerators reserved for a year"
    assert one.saves == ((730 + 500 + 500) * 4_000_000 - 3 * 730 * 2_400_000)
    assert "438 hours a month" in one.arithmetic
    dear = replace(found, reserve_price=3_000_000)  # 547.5 hours
    assert said(dear, "reserve")[0].subject == "pool h100: 1 accelerator reserved for a year"
    assert said(replace(found, reserve_price=None, buy_price=40_000_000_000), "reserve")[0].subject.endswith("3 years")
    both = said(replace(found, buy_price=40_000_000_000), "reserve")[0].evidence
    assert both == (
        "30 days of demand",
        "reserved for a year: pays from 438 hours a month on",
        "bought and used for 2 years: pays from 417 hours a month on",
        "bought and used for 3 years: pays from 278 hours a month on",
    )
    for silent in (replace(found, whole=False), replace(found, days=2.0), replace(found, reserve_price=None)):
        assert said(silent, "reserve") == []


def test_prices_of_the_book_are_offers_too() -> None:
    book = BOOK.model_copy(update={"pools": {**BOOK.pools, "own": (Price(kind="owned", accelerator=10**9),)}})
    pools = {"h100": replace(H100, demand=((1.0, 730.0),)), "own": PoolFact("own", "H100", None, 1_000_000, "owned")}
    (one,) = said(replace(facts(pools=pools), prices=Prices(book, {})), "reserve")
    assert one.saves == 730 * 3_000_000


# --- sessions, saves and sweeps ---------------------------------------------------------------------------------------
def test_an_idle_session_is_stopped_or_limited() -> None:
    (one,) = said(facts(run(1, kind="session", phase="running", idle_share=0.75)), "idle-session")
    assert (one.saves, one.command) == (30_000_000, "muster stop gpt-1")
    (one,) = said(facts(run(1, kind="session", idle_share=0.75)), "idle-session")
    assert one.command == "muster runs reproduce gpt-1 -o max_duration=3h"
    assert said(facts(run(1, kind="session", idle_share=None)), "idle-session") == []


def test_saves_follow_how_often_machines_fail() -> None:
    rare = run(1, save_every=4 * 3600.0, save_seconds=5.0)
    found = facts(rare, failures=10, node_hours=200.0)  # one in 20 hours
    (one,) = said(found, "checkpoint")
    assert one.command == "muster runs reproduce gpt-1 -o checkpoint.every=14m9s"  # √(2 × 5 s × 72,000 s) = 849 s
    assert one.saves == pytest.approx(40_000_000 * (5 / 14_400 + 14_400 / 144_000 - 2 * 5 / 848.5), rel=0.01)
    assert said(replace(found, failures=1), "checkpoint") == [], "one failure says too little"
    assert said(replace(found, runs=(replace(rare, save_seconds=None),)), "checkpoint") == []


def test_a_sweep_whose_last_third_of_money_brought_nothing_is_stopped() -> None:
    trials = [run(n, parent="sweep-9", begin=MONDAY + n, score=max(5.0 - n, 1.0)) for n in range(1, 10)]
    found = facts(*trials, sweeps=(SweepFact("sweep-9", "language", running=True),))
    (one,) = said(found, "sweep")
    assert (one.saves, one.command) == (120_000_000, "muster stop sweep-9")
    assert "among the first 6" in one.arithmetic
    better = replace(trials[-1], score=0.5)
    assert said(replace(found, runs=(*trials[:-1], better)), "sweep") == []
    assert said(replace(found, runs=tuple(trials[:5])), "sweep") == [], "too few trials"
    over = replace(found, sweeps=(SweepFact("sweep-9", "language", running=False, array=True),))
    assert said(over, "sweep")[0].command == "muster runs reproduce sweep-9 -o array=0-5"


def test_amounts_are_for_a_month() -> None:
    week = replace(facts(run(1, kind="session", idle_share=0.75)), days=10.0)
    assert said(week, "idle-session")[0].saves == 90_000_000


def test_every_kind_is_tried() -> None:
    tried: list[Callable[..., object]] = list(ADVICE.values())
    assert len(tried) == 7
