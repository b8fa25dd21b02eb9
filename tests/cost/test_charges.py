"""What an attempt costs, who pays it, and that every grouping of the ledger has the same sum to the last millionth."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.core.attempt_events import AttemptPlanned, AttemptRunning, CheckpointCommitted
from muster.core.cost_events import AttemptCharged, CostCorrected
from muster.core.entities.price_book import PricesSet, prices_of
from muster.core.entities.rules_in_force import RulesSet
from muster.core.event import Event
from muster.core.job_events import JobStopping
from muster.core.money import divide
from muster.core.prices import HOUR, SECOND, Price, PriceBook, Prices, Quantity
from muster.core.reasons import Reason, reason
from muster.core.seat import Seat
from muster.core.state import State, apply
from muster.cost.charge import charge, charge_lines, totals
from muster.cost.ledger import Payer, TimeClass, by_class, charge_entries, correction_entries
from scheduler_kit import entities, fold, job_event, node_event

START = 1_790_000_000.0  # a second of September 2026
BOOK = {"version": 1, "pools": {"main": [{"accelerator": 3_600_000_000}]}}  # 3.60 an hour: 1,000 millionths a second
LOST = reason("node_lost", node="n0")


def running(*more: Event, launch: float = 10.0, book: dict[str, object] = BOOK) -> State:
    """A job of two accelerators that got its seats at START, and runs after `launch` seconds."""
    at = {"project": "default", "job": "job-1", "attempt": 1}
    return fold([
        *entities(),
        node_event("n0", 8, 64),
        Event(PricesSet(book), 1.0),
        job_event(1, resources={"accelerators": "H100:2"}),
        Event(AttemptPlanned((Seat("n0", (0, 1)),)), START, **at),
        Event(AttemptRunning(), START + launch, **at),
        *more,
    ])  # fmt: skip


def cost(state: State, outcome: str, cause: Reason, seconds: float) -> AttemptCharged:
    found = charge(state, state.jobs["job-1"], outcome, cause, START + seconds)
    assert found is not None
    return found


def saved(step: int, seconds: float) -> Event:
    return Event(CheckpointCommitted(step, "/c", 1), START + seconds, project="default", job="job-1", attempt=1)


def test_a_project_pays_for_the_time_that_its_gang_holds_the_seats() -> None:
    found = cost(running(), "succeeded", reason("completed"), 3600)
    assert (found.amount, found.platform, found.cause) == (7_200_000, 0, "")
    assert cost(running(), "failed", reason("user_error"), 1).amount == 2_000


def test_what_a_lost_node_took_is_the_platforms() -> None:
    found = cost(running(saved(5, 1000)), "failed", LOST, 1600)
    assert (found.amount, found.platform, found.cause) == (2 * 1000 * 1000, 2 * 600 * 1000, "node_lost")
    assert cost(running(), "failed", LOST, 1600).amount == 2 * 10 * 1000  # it never saved: all since it ran


def test_the_platform_pays_at_most_the_stated_time_of_lost_work() -> None:
    found = cost(running(book={**BOOK, "lost_work": 300.0}), "failed", LOST, 1600)
    assert found.platform == 2 * 300 * 1000


def test_preemption_is_the_platforms_and_a_users_stop_is_not() -> None:
    at = {"project": "default", "job": "job-1", "attempt": 1}
    taken = Event(JobStopping(reason("preempted"), "queued", 30.0), START + 100, **at)
    found = cost(running(taken, saved(7, 110)), "stopped", LOST, 120)
    assert (found.amount, found.platform, found.cause) == (2 * 110 * 1000, 2 * 10 * 1000, "preempted")
    stop = Event(JobStopping(reason("user_stop"), "stopped", 30.0), START + 100, **at)
    assert cost(running(stop), "stopped", reason("user_stop"), 120).platform == 0


def test_a_launch_after_the_platforms_fault_and_a_start_that_failed_are_not_charged() -> None:
    state = running()
    state.jobs["job-1"].relaunch = "node_lost"
    found = cost(state, "succeeded", reason("completed"), 100)
    assert (found.amount, found.platform) == (2 * 90 * 1000, 2 * 10 * 1000)
    attempt = state.jobs["job-1"].attempt
    attempt.running_at = None
    assert cost(state, "failed", reason("launch_failed"), 60).amount == 0
    attempt.workers[0].exit = {"outcome": "failed", "reason": "user_error", "exit_code": 3, "time": START + 1}
    assert cost(state, "failed", reason("user_error"), 1).amount == 2_000, "it ran, and ended before that was recorded"


def test_nothing_is_charged_where_nothing_has_a_price_and_a_missing_price_is_counted_apart() -> None:
    plain = fold([*entities(), node_event("n0", 8, 64), job_event(1)])
    assert charge(plain, plain.jobs["job-1"], "succeeded", reason("completed"), START) is None
    found = cost(
        running(book={"version": 1, "pools": {"other": [{"accelerator": 1}]}}), "succeeded", reason("completed"), 9
    )
    entries = charge_entries(1, "job-1", 1, found, Payer("default"), ZoneInfo("UTC"))
    assert [(one.amount, one.unpriced) for one in entries] == [(0, 2000 * 9000)]


def test_a_price_of_the_policy_holds_from_when_it_was_set() -> None:
    state = fold(
        [
            Event(RulesSet({"pools": {"main": {"price": price}}}, ""), time)
            for time, price in ((100.0, 2.0), (200.0, 4.0))
        ]
    )
    spans = list(prices_of(state).spans("main", Quantity(1000), 0, 300 * SECOND))
    assert [(one.end // SECOND, one.nanos) for one in spans] == [(100, None), (200, 2 * 10**9), (300, 4 * 10**9)]


def test_a_clock_that_jumps_back_charges_nothing() -> None:
    assert cost(running(), "failed", reason("user_error"), -50).amount == 0


def test_a_day_in_which_clocks_change_has_25_hours() -> None:
    zone = ZoneInfo("Europe/Berlin")
    begin = 1_792_792_800 * SECOND  # 2026-10-24, 00:00 in Berlin; clocks change on the 25th
    lines = list(
        charge_lines(Prices(PriceBook.model_validate(BOOK), {}), "main", Quantity(1000), begin, begin + 97 * HOUR, ())
    )
    total, platform = totals(lines)
    one = AttemptCharged(total, platform, "USD", "main", 1, "f", "", [1000, 0, 0, 1], lines)
    days = {e.day: (e.end - e.begin) // HOUR for e in charge_entries(1, "r", 1, one, Payer("p"), zone)}
    assert days == {"2026-10-24": 24, "2026-10-25": 25, "2026-10-26": 24, "2026-10-27": 24}


# --- properties -------------------------------------------------------------------------------------------------------
nanos = st.integers(0, 10**11)
moments = st.integers(0, 40 * 24 * 3600)


@st.composite
def books(draw: st.DrawFn) -> PriceBook:
    cuts = sorted(draw(st.sets(moments, max_size=4)))
    edges = [0.0, *(START + cut for cut in cuts)]
    prices = [
        Price(since=since, until=edges[n + 1] if n + 1 < len(edges) else None, accelerator=draw(nanos), cpu=draw(nanos),
              unpriced=draw(st.booleans()), kind=draw(st.sampled_from(["on_demand", "spot"])))
        for n, since in enumerate(edges)
    ]  # fmt: skip
    return PriceBook(version=draw(st.integers(1, 9)), pools={"main": tuple(prices)})


@st.composite
def charges(draw: st.DrawFn, book: PriceBook) -> AttemptCharged:
    begin = round(START * SECOND) + draw(st.integers(0, 30 * 24 * HOUR))
    end = begin + draw(st.integers(0, 5 * 24 * HOUR))
    cut = draw(st.integers(begin, end))
    held = Quantity(draw(st.integers(0, 8000)), draw(st.integers(0, 64_000)), 0, 1)
    lines = list(charge_lines(Prices(book, {}), "main", held, begin, end, ((cut, end),) if cut < end else ()))
    total, platform = totals(lines)
    return AttemptCharged(total - platform, platform, "USD", "main", book.version, "f", "", list(held), lines)


@given(st.data(), books(), books(), st.sampled_from(["UTC", "Europe/Berlin", "Asia/Kathmandu", "Pacific/Apia"]))
def test_sums_agree_in_any_grouping_also_after_corrections(
    data: st.DataObject, first: PriceBook, second: PriceBook, zone: str
) -> None:
    there, entries, expected = ZoneInfo(zone), [], Counter()
    for seq in range(1, data.draw(st.integers(1, 4)) + 1):
        made = data.draw(charges(first))
        assert sum(int(line[3]) for line in made.lines) == made.amount + made.platform
        entries += charge_entries(seq, f"run-{seq % 2}", seq, made, Payer(f"p{seq % 2}"), there)
        expected += Counter(project=made.amount, platform=made.platform)
        if made.lines and data.draw(st.booleans()):
            shares = tuple((int(line[0]), int(line[1])) for line in made.lines if line[4])
            lines = list(
                charge_lines(
                    Prices(second, {}),
                    "main",
                    Quantity(*made.held),
                    int(made.lines[0][0]),
                    int(made.lines[-1][1]),
                    shares,
                )
            )
            total, platform = totals(lines)
            fixed = CostCorrected(
                seq, total - platform - made.amount, platform - made.platform, "USD", 2, made.held, lines, ""
            )
            mine = [one for one in entries if one.attempt == seq]
            new = correction_entries(100 + seq, mine, fixed, there)
            entries += new
            assert all(one.correction for one in new)
            expected.update(project=fixed.amount, platform=fixed.platform)
            again = CostCorrected(seq, 0, 0, "USD", 2, made.held, lines, "")  # corrected to the same: nothing changes
            back = correction_entries(200 + seq, [*mine, *new], again, there)
            assert sum(one.amount for one in back) == 0
            assert sum(one.held for one in back) == 0
    for group in ("account", "day", "run", "price"):
        sums = Counter[str]()
        for one in entries:
            sums[str(getattr(one, group))] += one.amount
        assert sum(sums.values()) == sum(expected.values())
    assert {key: value for key, value in _sums(entries).items() if value} == {k: v for k, v in expected.items() if v}
    cuts = sorted(data.draw(st.lists(st.integers(0, 40 * 24 * HOUR), max_size=5)))
    edges = [round(START * SECOND) + cut for cut in [0, *cuts]]
    classes = [TimeClass(a, b, f"c{n % 3}") for n, (a, b) in enumerate(pairwise(edges))]
    for one in entries:
        assert sum(amount for _, _, amount in by_class(one, classes)) == one.amount


def _sums(entries: list) -> Counter[str]:
    found = Counter[str]()
    for one in entries:
        found[one.account] += one.amount
    return found


@given(st.integers(-(10**15), 10**15), st.lists(st.integers(0, 10**15), min_size=1, max_size=20))
def test_parts_add_up(total: int, weights: list[int]) -> None:
    parts = divide(total, weights)
    assert sum(parts) == total
    if sum(weights):
        exact = [total * weight / sum(weights) for weight in weights]
        assert all(abs(part - want) <= 1 + abs(want) * 1e-9 for part, want in zip(parts, exact, strict=True))


def test_spent_is_folded_and_the_next_launch_is_remembered() -> None:
    state = running()
    found = cost(state, "failed", LOST, 1600)
    apply(state, Event(found, START + 1600, project="default", job="job-1", attempt=1).stamped(99))
    job = state.jobs["job-1"]
    assert (job.spent, job.relaunch) == (found.amount, "node_lost")


def test_no_weights_means_no_parts() -> None:
    with pytest.raises(ValueError, match="no parts"):
        divide(1, [])
