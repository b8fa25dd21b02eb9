"""Hours and days: windows of the week, quiet hours, maintenance, and spot nodes as long as the deadline allows."""

from __future__ import annotations

from datetime import UTC, datetime
from math import inf

from hypothesis import given, settings
from hypothesis import strategies as st

from muster.core.plan import Plan
from muster.core.rules import DAYS, Maintenance, PoolRules, Preemption, QueueRules, Rules, Window
from muster.core.windows import closes, next_change, open_until, opens
from muster.sched.backfill import expected_duration
from scheduler_kit import SchedulerLoop
from streams import board_agrees, limits_hold, plan_is_sound

CHECKS = [plan_is_sound, limits_hold, board_agrees]
HOUR = 3600
DAY = 24 * HOUR
QUIET = Preemption(enabled=False)
MONDAY = datetime(2026, 3, 2, tzinfo=UTC).timestamp()  # midnight


@st.composite
def windows(draw: st.DrawFn) -> Window:
    days = draw(st.sets(st.sampled_from(DAYS), min_size=1))
    start, end = draw(st.integers(0, 23)), draw(st.integers(1, 24))
    return Window(
        days=tuple(day for day in DAYS if day in days), start=start * HOUR, end=(end if end != start else 24) * HOUR
    )


def is_open(window: Window, now: float) -> bool:
    """By the calendar: today's window, or yesterday's that runs past midnight."""
    at = datetime.fromtimestamp(now, UTC)
    second = at.hour * HOUR + at.minute * 60 + at.second
    today, yesterday = DAYS[at.weekday()], DAYS[at.weekday() - 1]
    if window.start < window.end:
        return today in window.days and window.start <= second < window.end
    return (today in window.days and second >= window.start) or (yesterday in window.days and second < window.end)


@settings(max_examples=200, deadline=None)
@given(st.lists(windows(), max_size=3).map(tuple), st.integers(0, 14 * 24 * 2))
def test_windows_open_and_shut_as_the_calendar_says(made: tuple[Window, ...], half_hours: int):
    now = MONDAY + half_hours * HOUR / 2
    open_now = not made or any(is_open(window, now) for window in made)
    assert (opens(made, now) == now) == open_now
    if not open_now:
        step = now
        while not any(is_open(window, step) for window in made):
            step += HOUR / 2
        assert opens(made, now) == step
    if made and open_now:
        end = open_until(made, now)
        steps = [now + i * HOUR / 2 for i in range(7 * 48) if now + i * HOUR / 2 < end]
        assert all(any(is_open(window, step) for window in made) for step in steps)
        assert end == inf or not any(is_open(window, end) for window in made)
    if not made:
        assert open_until(made, now) == inf


def test_maintenance_closes_the_nodes_that_it_names():
    rules = PoolRules(maintenance=(Maintenance(start=100.0, end=200.0, nodes=("n0",)), Maintenance(start=300, end=400)))
    assert [closes(rules, "n0", at) for at in (0.0, 100.0, 199.0, 200.0, 350.0, 400.0)] == [
        100.0, -inf, -inf, 300.0, -inf, inf,
    ]  # fmt: skip
    assert closes(rules, "n1", 150.0) == 300.0
    assert [next_change(rules, at) for at in (0.0, 100.0, 200.0, 399.0, 400.0)] == [100.0, 200.0, 300.0, 400.0, inf]


# --- quiet hours ------------------------------------------------------------------------------------------------------
NIGHT = (Window(start=20 * HOUR, end=6 * HOUR),)


def clocked(rules: Rules, pools: dict[str, bool] | None = None) -> SchedulerLoop:
    loop = SchedulerLoop(rules, pools=pools or {"main": False}, now=MONDAY, checks=list(CHECKS))
    return loop


def test_a_job_that_can_wait_starts_when_the_quiet_hours_begin():
    loop = clocked(Rules(pools={"main": PoolRules(off_peak=NIGHT)}, defaults=QueueRules(overdue=None)))
    loop.now = MONDAY + 12 * HOUR
    loop.node("n0", gpus=2)
    loop.submit("patient", 100, gpus=1, off_peak=True)
    loop.submit("other", 100, gpus=1)
    loop.run()
    assert loop.times("starts", "other") == [MONDAY + 12 * HOUR]
    assert loop.times("starts", "patient") == [MONDAY + 20 * HOUR]


def test_what_did_not_get_its_turn_in_the_quiet_hours_waits_for_the_next():
    loop = clocked(
        Rules(pools={"main": PoolRules(off_peak=NIGHT)}, defaults=QueueRules(overdue=None), preemption=QUIET)
    )
    loop.now = MONDAY + 5 * HOUR
    loop.node("n0", gpus=1)
    loop.submit("long", 3 * HOUR, gpus=1)
    loop.run(until=MONDAY + 5 * HOUR)
    loop.submit("patient", 100, gpus=1, off_peak=True)
    loop.run()
    assert loop.times("starts", "patient") == [MONDAY + 20 * HOUR]


def test_quiet_hours_are_those_of_the_pool_that_it_goes_to():
    """One pool has none, and is full: the other is not entered before its hours."""
    loop = clocked(
        Rules(pools={"main": PoolRules(off_peak=NIGHT)}, defaults=QueueRules(overdue=None), preemption=QUIET),
        {"main": False, "any": False},
    )
    loop.now = MONDAY + 12 * HOUR
    loop.node("n0", gpus=1)
    loop.node("n1", gpus=1, pool="any")
    loop.submit("busy", 20 * HOUR, gpus=1, pool="any")
    loop.submit("patient", 100, gpus=1, off_peak=True)
    loop.run()
    assert loop.times("starts", "patient") == [MONDAY + 20 * HOUR]


def test_one_who_comes_between_two_quiet_times_is_woken_for_the_next():
    rules = Rules(pools={"main": PoolRules(off_peak=(Window(end=100), Window(start=150)))})
    loop = SchedulerLoop(rules, checks=[*CHECKS])
    loop.node("n0", gpus=1)
    loop.after(125.0, lambda: loop.submit("patient", 10, gpus=1, off_peak=True))
    loop.run()
    assert loop.times("starts", "patient") == [150.0]


# --- maintenance ------------------------------------------------------------------------------------------------------
def done_before_the_nodes_go(loop: SchedulerLoop, plan: Plan) -> None:
    for start in plan.starts:
        job = loop.job(start.job)
        for seat in start.seats:
            node = loop.state.nodes[seat.node]
            at = closes(loop.rules.pool(node.pool), node.name, loop.now)
            assert loop.now + expected_duration(job, loop.rules, loop.now) <= at


def test_nothing_starts_that_would_not_be_done_before_maintenance():
    away = Maintenance(start=1000.0, end=2000.0, nodes=("n0",))
    rules = Rules(estimates="declared", pools={"main": PoolRules(maintenance=(away,))}, preemption=QUIET)
    loop = SchedulerLoop(rules, checks=[*CHECKS, done_before_the_nodes_go])
    loop.nodes(2, gpus=1)
    loop.submit("long0", 1500, gpus=1, max_duration=1500)
    loop.submit("long1", 1500, gpus=1, max_duration=1500)
    loop.submit("short", 900, gpus=1, max_duration=900)
    loop.submit("late", 900, gpus=1, max_duration=900)
    loop.run()
    assert {loop.told[i][2:] for i in range(2)} == {("short", "n0"), ("late", "n1")}  # the shorter goes first
    assert loop.times("starts", "long0") == [900.0]
    assert loop.times("starts", "long1") == [2000.0]
    assert not loop.state.jobs


def test_a_job_that_others_left_for_does_not_start_into_maintenance():
    """It would have been done in time when it asked; it is not any more when they have left."""
    away = Maintenance(start=100.0, end=2000.0)
    rules = Rules(
        estimates="declared", pools={"main": PoolRules(maintenance=(away,))}, defaults=QueueRules(order="priority"),
        preemption=Preemption(grace=30.0, min_run=0.0, restart_cost=0.0),
    )  # fmt: skip
    loop = SchedulerLoop(rules, checks=[*CHECKS, done_before_the_nodes_go])
    loop.node("n0", gpus=1)
    loop.submit("low", 90, gpus=1, priority=20, max_duration=90)
    loop.run(until=35.0)
    loop.submit("high", 60, gpus=1, priority=90, max_duration=60)
    loop.run()
    assert not loop.state.jobs


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 60), st.integers(1, 60), st.sampled_from([1, 1, 2])), min_size=1, max_size=12),
    st.integers(5, 60), st.integers(1, 20), st.sampled_from(["fifo", "predicted", "priority"]),
    st.sampled_from(["greedy", "easy", "conservative"]),
)  # fmt: skip
def test_maintenance_finds_its_nodes_empty(jobs, start, lasts, order, backfill):
    away = Maintenance(start=10.0 * start, end=10.0 * (start + lasts), nodes=("n0",))
    rules = Rules(
        estimates="declared", pools={"main": PoolRules(maintenance=(away,))},
        defaults=QueueRules(order=order, backfill=backfill), preemption=QUIET,
    )  # fmt: skip
    loop = SchedulerLoop(rules, checks=[*CHECKS, done_before_the_nodes_go])
    loop.nodes(2, gpus=2)
    for number, (at, seconds, gpus) in enumerate(jobs):
        loop.after(
            10.0 * at,
            lambda n=number, s=10.0 * seconds, g=gpus: loop.submit(f"j{n}", s, gpus=g, max_duration=s),
        )
    loop.run(until=away.start)
    assert not loop.state.nodes["n0"].jobs
    loop.run()
    assert not loop.state.jobs


# --- spot -------------------------------------------------------------------------------------------------------------
def spot() -> SchedulerLoop:
    loop = SchedulerLoop(
        Rules(estimates="declared", preemption=QUIET), pools={"main": False, "spot": True}, checks=[*CHECKS]
    )
    loop.node("n0", gpus=1)
    loop.node("s0", gpus=1, pool="spot")
    return loop


def test_only_those_who_say_so_run_on_spot_nodes_and_they_prefer_them():
    loop = spot()
    loop.submit("steady0", 100, gpus=1)
    loop.submit("steady1", 100, gpus=1)
    loop.submit("spot", 100, gpus=1, use_spot=True)
    loop.tick()
    assert loop.running() == {"steady0", "spot"}
    assert loop.sits("spot") == ("s0",)
    loop.run()
    assert loop.times("starts", "steady1") == [100.0]


def test_a_job_with_a_deadline_leaves_spot_nodes_alone_when_time_gets_short():
    """Taken away again and again, it must be on nodes that stay while there is still time."""
    loop = spot()
    loop.submit("job", 100, gpus=1, use_spot=True, deadline=400, max_duration=100, retry={"backoff": 0})
    loop.run(until=0.0)
    assert loop.sits("job") == ("s0",)
    for at in (50.0, 140.0, 230.0):
        loop.run(until=at)
        loop.lose("s0")
        loop.node("s0", gpus=1, pool="spot")
        loop.tick()
    assert loop.sits("job") == ("s0",)
    loop.run(until=260.0)
    loop.lose("s0")
    loop.node("s0", gpus=1, pool="spot")
    loop.run(until=270.0)
    assert loop.sits("job") == ("n0",)
    loop.run()
    assert loop.times("succeeded", "job")[0] <= 400.0


def test_one_who_waits_for_a_spot_node_is_looked_at_again_when_its_time_gets_short():
    loop = spot()
    loop.submit("steady", 1000, gpus=1)
    loop.submit("first", 1000, gpus=1, use_spot=True)
    loop.tick()
    loop.submit("job", 100, gpus=1, use_spot=True, deadline=300, max_duration=100)
    loop.run(until=200.0)
    loop.stop("steady", grace=0.0)
    loop.run(until=201.0)
    assert loop.sits("job") == ("n0",)
