"""The parts of the board, each on its own."""

from __future__ import annotations

from math import inf

from hypothesis import given
from hypothesis import strategies as st

from muster.core.job import Job
from muster.core.rules import PoolRules, QueueRules, Rules
from muster.core.seat import Seat
from muster.core.state import State
from muster.sched.changes import Changes
from muster.sched.claims import Claims
from muster.sched.limits import Limits, weight_of
from muster.sched.pool_access import PoolAccess
from muster.sched.quota import Quotas
from muster.sched.rules_view import RulesView
from muster.sched.running_gangs import RunningGangs
from muster.sched.shares import Shares
from muster.sched.timers import QUEUED, Timers
from muster.sched.waiting_jobs import WaitingJobs
from scheduler_kit import SchedulerLoop

EIGHT = tuple(range(8))


def jobs(rules: Rules, **specs: dict[str, object]) -> tuple[State, dict[str, Job]]:
    """Queued jobs in a cluster of two nodes with eight accelerators each."""
    loop = SchedulerLoop(rules)
    loop.nodes(2, gpus=8)
    for name, spec in specs.items():
        loop.submit(name, 1000, **spec)
    return loop.state, {name: loop.job(name) for name in specs}


# --- timers -----------------------------------------------------------------------------------------------------------
@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 20) | st.none()), max_size=30), st.integers(0, 20))
def test_a_timer_is_due_once_and_only_the_last_one_set_counts(steps: list[tuple[str, int | None]], now: int):
    timers, last = Timers(), dict[str, float]()
    for name, at in steps:
        if at is None:
            timers.cancel(name)
            last.pop(name, None)
        else:
            timers.set(name, at)
            last[name] = at
    assert timers.first([QUEUED]) == min(last.values(), default=inf)
    due: dict[str, None] = {}
    timers.pop_due(QUEUED, now, due)
    assert set(due) == {name for name, at in last.items() if at <= now}
    again: dict[str, None] = {}
    timers.pop_due(QUEUED, now, again)
    assert not again
    assert timers.first([QUEUED]) == min((at for at in last.values() if at > now), default=inf)


def test_timers_of_pools_that_nobody_asks_for_stay():
    timers = Timers()
    timers.set("gang", 5.0, "main")
    assert timers.first([QUEUED]) == inf
    assert timers.any_due("main", 5.0)
    assert not timers.any_due("main", 4.0)
    assert timers.first([QUEUED, "main"]) == 5.0


# --- limits and claims ------------------------------------------------------------------------------------------------
def test_a_claim_counts_like_the_gang_that_it_is_for_and_leaves_nothing_behind():
    rules = Rules(defaults=QueueRules(quota={"main": 4}, max_running=5))
    _, found = jobs(rules, one={"gpus": 8})
    limits = Limits(Quotas(rules, ("default",)), limited=True)
    claims = Claims(limits)
    seats = (Seat("n0", EIGHT), Seat("n1", EIGHT))
    claims.add(found["one"], seats, "main")
    assert [claim.job.id for claim in claims.on("n1")] == [found["one"].id]
    assert limits.counts["queue", "default"] == 1
    assert limits.weights["user", "default", found["one"].user] == weight_of(seats) == 16.0
    assert limits.quotas.borrowed("default", "main") == 12.0
    assert claims.touched == {"n0", "n1"}
    claims.remove(found["one"].id)
    claims.remove(found["one"].id)  # once is enough
    assert not claims.on("n1")
    assert not claims.by_job
    assert limits.counts["queue", "default"] == 0
    assert limits.quotas.borrowed("default", "main") == 0.0


def test_a_part_of_an_accelerator_weighs_its_share():
    assert weight_of((Seat("n0", (0,), 250), Seat("n1", (3,), 500))) == 0.75


# --- pools ------------------------------------------------------------------------------------------------------------
def test_pools_come_cheapest_first_and_bursts_open_after_their_wait():
    rules = Rules(pools={"own": PoolRules(price=2.0), "cheap": PoolRules(price=1.0), "cloud": PoolRules(burst=60.0)})
    loop = SchedulerLoop(rules, pools={"own": False, "cheap": False, "cloud": False, "spot": True})
    for pool in ("own", "cheap", "cloud", "spot"):
        loop.node(f"{pool}-0", gpus=2, pool=pool)
    loop.submit("any", 100, gpus=1)
    loop.submit("bound", 100, gpus=1, pool="own")
    loop.submit("spot", 100, gpus=1, use_spot=True)
    access = PoolAccess.of(loop.state)
    start = loop.job("any").since
    assert access.pools_of(loop.job("any"), start) == ("cheap", "own")
    assert access.next_change(loop.job("any"), start) == start + 60.0 == access.opens_at(loop.job("any"), "cloud")
    assert access.pools_of(loop.job("any"), start + 60.0) == ("cheap", "own", "cloud")
    assert access.next_change(loop.job("any"), start + 60.0) == inf
    assert access.pools_of(loop.job("bound"), start + 60.0) == ("own",)
    assert access.pools_of(loop.job("spot"), start) == ("spot", "cheap", "own")
    assert not access.allows(loop.job("any"), "spot")


# --- queued jobs ------------------------------------------------------------------------------------------------------
def waiting_jobs(state: State) -> WaitingJobs:
    return WaitingJobs(state, RulesView.of(state.rules), PoolAccess.of(state), Changes(), Timers())


def test_equal_requests_share_a_shape_and_the_last_to_leave_clears_every_index():
    rules = Rules(defaults=QueueRules(order="priority", overdue=10.0))
    state, found = jobs(rules, one={"gpus": 1}, two={"gpus": 1}, wide={"gpus": 8, "num_nodes": 2})
    waiting = waiting_jobs(state)
    for job in found.values():
        waiting.add(job, now=100.0)
    assert len(waiting.shapes["main"]) == 2
    assert waiting.queued[found["one"].id].stream is waiting.queued[found["two"].id].stream
    assert set(waiting.changes.shapes) == set(waiting.shapes["main"])
    assert waiting.any_overdue
    waiting.changes.shapes.clear()
    waiting.mark_queue("default")
    assert len(waiting.changes.shapes) == 2
    for job in found.values():
        assert waiting.remove(job.id) is not None
        assert waiting.remove(job.id) is None
    assert not waiting.shapes
    assert not waiting.queued
    assert not waiting.any_overdue
    assert not waiting.changes.shapes
    assert not any(waiting.streams.values())
    assert not any(waiting.most_valuable.values())


# --- running gangs ----------------------------------------------------------------------------------------------------
def running_gangs(state: State) -> RunningGangs:
    rules = RulesView.of(state.rules)
    limits = Limits(Quotas(state.rules, tuple(state.queues)), rules.limited)
    return RunningGangs(state, rules, limits, Shares(state), Changes(), Timers())


def test_gangs_are_sorted_by_value_and_one_that_leaves_is_never_chosen_again():
    loop = SchedulerLoop(Rules(defaults=QueueRules(order="priority")))
    loop.nodes(2, gpus=8)
    loop.submit("high", 1000, gpus=8, priority=90)
    loop.submit("low", 1000, gpus=8, priority=20)
    loop.tick()
    assert loop.running() == {"high", "low"}
    gangs = running_gangs(loop.state)
    for name in ("high", "low"):
        job = loop.job(name)
        assert job.attempt is not None
        seats = tuple(worker.seat for worker in job.attempt.workers)
        gangs.update(gangs.add(job, seats, job.attempt.number, loop.now, "main", charge=False), loop.now)
    assert [known.job.id for known in gangs.in_pool("main")] == [loop.job("low").id, loop.job("high").id]
    assert gangs.limits.counts["queue", "default"] == 2
    low = gangs.running[loop.job("low").id]
    gangs.leave(low)
    assert low.value == inf
    assert gangs.changes.limits_eased
    assert gangs.limits.counts["queue", "default"] == 1
    assert gangs.leaving["main"] == {low.job.id}
    for name in ("high", "low"):
        gangs.remove(loop.job(name).id, loop.now)
    assert gangs.limits.counts["queue", "default"] == 0
    assert not gangs.running
    assert not gangs.leaving["main"]
    assert not list(gangs.in_pool("main"))


def test_the_view_of_the_rules_says_what_any_queue_does():
    rules = Rules(queues={"a": QueueRules(backfill="easy", slice=60.0), "b": QueueRules(max_per_user=1)})
    view = RulesView.of(rules)
    assert view.reserves
    assert view.ordered
    assert view.slices
    assert view.limited
    assert view.by_user
    assert not view.fair
    assert view.queue("a")[0].slice == 60.0
    plain = Rules(defaults=QueueRules(backfill="greedy", order="fifo"))
    assert RulesView.of(plain) == RulesView(plain)
