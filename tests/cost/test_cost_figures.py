"""The figures of cost reports: families, Pareto, waste, forecast, change, spot, hours, days and explanations."""

from __future__ import annotations

from zoneinfo import ZoneInfo

import pytest
from cost_ledger_kit import entry

from muster.core.errors import Invalid
from muster.cost.charge import UNPRICED
from muster.cost.ledger import Payer
from muster.cost.report.change import changes
from muster.cost.report.days import before, days_of, part_of_day_left
from muster.cost.report.explain import arithmetic, payment
from muster.cost.report.forecast import forecast
from muster.cost.report.pareto import RunValue, pareto
from muster.cost.report.spot import hour_costs, spot_costs
from muster.cost.report.sums import HELD_HOUR, Sum
from muster.cost.report.waste import ClassAmount, waste_causes

BERLIN, UTC = ZoneInfo("Europe/Berlin"), ZoneInfo("UTC")
NOON = 1793880000.0  # 2026-11-05T12:00Z


def test_the_front_has_the_runs_that_no_other_beats() -> None:
    runs = [RunValue(name, name, "red", "USD", amount * 1_000_000, value)
            for name, amount, value in (("a", 1, 3.0), ("b", 2, 2.5), ("c", 3, 2.6), ("d", 4, 2.0), ("e", 5, float("inf")))]  # fmt: skip  # noqa: E501
    found = pareto(runs, "lower")
    assert [one["run"] for one in found if one["front"]] == ["a", "b", "d"]
    assert [one["marginal"] for one in found] == [None, 2.0, 4.0, None]
    assert [one["run"] for one in pareto(runs, "higher") if one["front"]] == ["a"]
    assert len(pareto([runs[0], runs[1]._replace(currency="EUR")], "lower")) == 2


def test_every_amount_is_in_one_cause() -> None:
    causes, useful = waste_causes([
        ClassAmount("red", "p", "USD", "training", "", 60), ClassAmount("red", "p", "USD", "starting.image", "", 5),
        ClassAmount("red", "p", "USD", "starting.ranks", "", 5),
        ClassAmount("red", "p", "USD", "lost", "node_lost", 20),
        ClassAmount("", "p", "USD", "idle_capacity", "", 10),
    ])  # fmt: skip
    assert useful == {"USD": 60}
    assert [(one["cause"], one["amount"], one["share"]) for one in causes] == [
        ("Seats held after failures after node_lost in project red", 20, 0.2),
        ("Capacity of pool p that nobody used", 10, 0.1),
        ("Starts of jobs in project red", 10, 0.1),
    ]


def test_a_forecast_adds_the_mean_of_working_days_and_weekends() -> None:
    days = {f"2026-10-{day:02d}": 0 if day % 7 in (3, 4) else 100 for day in range(1, 32)}  # 3 October is a Saturday
    days |= {f"2026-11-{day:02d}": 0 if day in (1, 7, 8) else 100 for day in range(1, 10)}
    found = forecast("USD", 600, 50, days, "2026-11-10", "2026-11-30", 0.5)
    # Half of Tuesday the 10th, 14 working days, three weekends.
    assert found["expected"] == 600 + 50 + 50 + 1400
    assert found["low"] == found["high"] == found["expected"]
    assert found["history"] == 28
    rough = forecast("USD", 0, 0, {**days, "2026-11-09": 900}, "2026-11-10", "2026-11-30", 0.5)
    assert rough["low"] < rough["expected"] < rough["high"]  # type: ignore[operator]
    short = forecast("USD", 7, 0, {"2026-11-08": 7}, "2026-11-10", "2026-11-30", 0.5)
    assert short["expected"] is None
    assert "2 days" in str(short["unknown"])
    over = forecast("USD", 7, 0, {}, "2026-12-10", "2026-11-30", 0.5)
    assert (over["expected"], over["days_left"]) == (7, 0)


def row(amount: int, hours: int, *keys: str, **given: int) -> Sum:
    return Sum(keys or ("red", "h100", "project"), "USD", amount, held=hours * HELD_HOUR)._replace(**given)


def test_a_change_is_hours_at_the_price_before_and_the_price_for_the_hours_of_now() -> None:
    (total,), (one,) = changes([row(100, 10)], [row(240, 12)])
    assert (one["change"], one["volume"], one["price"]) == (140, 20, 120)
    assert total["change"] == 140
    assert "10.0 → 12.0 hours" in one["words"]
    totals, moved = changes([row(100, 10)], [row(7, 1, "blue", "h100", "project"), row(100, 10)])
    assert [(each["project"], each["volume"], each["price"]) for each in moved] == [("blue", 7, 0)]
    assert totals[0]["before"] == 100
    two, _ = changes([row(1, 1)], [row(1, 1)._replace(currency="EUR")])
    assert [each["currency"] for each in two] == ["EUR", "USD"]


def test_spot_saves_the_difference_to_the_list_price_less_what_interruptions_cost() -> None:
    rows = [
        row(30, 3, "s", "spot", "project", listed=90), row(5, 1, "s", "spot", "platform", listed=15, platform=5),
        row(100, 4, "h", "on_demand", "project", listed=100),
    ]  # fmt: skip
    whole, pool = spot_costs(rows)
    assert (whole["pool"], whole["share"], whole["saved"], whole["lost"], whole["net"]) == ("", 0.5, 70, 5, 65)
    assert (pool["pool"], pool["share"]) == ("s", 1.0)
    assert spot_costs(rows[2:]) == []


def test_an_hour_costs_more_with_idle_capacity_and_more_still_where_little_is_useful() -> None:
    rows = [row(40, 10, "h", "on_demand", "project", listed=50),
            row(20, 0, "h", "", "idle", listed=20, idle=20)]  # fmt: skip
    (one,) = hour_costs(rows, {("h", "USD"): (20, 40)})
    assert (one["hours"], one["listed"], one["charged"], one["with_idle"], one["useful"]) == (10, 5, 4, 6, 12)
    assert hour_costs(rows, {})[0]["useful"] is None
    assert hour_costs([row(0, 3, "h", "", "project", unpriced=3 * HELD_HOUR)], {}) == []


def test_periods_are_whole_days_of_the_time_zone() -> None:
    found = days_of("2026-10", None, None, None, NOON, BERLIN)
    assert (found.first, found.last, found.over) == ("2026-10-01", "2026-10-31", True)
    assert (found.end - found.begin) / 3600 == 31 * 24 + 1  # clocks go back in it
    assert before(found).name == "2026-09"
    this = days_of(None, None, None, None, NOON, UTC)
    assert (this.first, this.last, this.has_today) == ("2026-11-01", "2026-11-30", True)
    assert (before(this).first, before(this).last) == ("2026-10-01", "2026-10-05")
    assert days_of(None, None, "3d", None, NOON, UTC).first == "2026-11-03"
    week = days_of(None, "2026-W43", None, None, NOON, UTC)
    assert (week.first, before(week).name) == ("2026-10-19", "2026-W42")
    assert part_of_day_left(NOON, UTC) == 0.5
    for given in (("2026-10", "2026-W43", None, None), ("2026-13", None, None, None), (None, None, "soon", None),
                  (None, None, "2026-02-30", None), (None, None, "2026-11-02", "2026-11-01")):  # fmt: skip
        with pytest.raises(Invalid):
            days_of(*given, NOON, UTC)


def test_an_entry_says_its_arithmetic_and_who_pays() -> None:
    gang = entry(1, 79_733_333, held=8 * 12_000_000_000, rate=23_920_000_000)
    gang = gang._replace(end=gang.begin + 12_000 * 1_000_000)
    assert arithmetic(gang) == "3h20m × 8 accelerators × 2.99 an hour (on_demand) = 79.73 USD"
    assert payment(gang) == "project red: its own work"
    assert "no price" in arithmetic(entry(rate=UNPRICED, price=""))
    assert payment(entry(account="platform", cause="node_lost")).startswith("the platform: node_lost")
    back = entry(amount=-5, held=-3_600_000_000, correction=True)
    assert arithmetic(back).startswith("taken back: 1h × 1 accelerator")
    for project, said in (("", "the platform: capacity"), ("red", "project red: its share of capacity")):
        idle = entry(run="", payer=Payer(project, pool="h"), account="idle", cause="idle")
        assert payment(idle) == f"{said} that nobody used"
