"""Spares of a pool: ordinary work leaves them, a gang that lost a node starts on them at once, nothing makes way."""

from __future__ import annotations

import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st

from muster.core.plan import Plan
from muster.core.resources import Resources
from muster.core.rules import Maintenance, PoolRules, Preemption, QueueRules, Rules
from muster.sched.explain import explain
from muster.sched.forecast import forecast
from muster.sched.spares import spares_for, without_spares
from scheduler_kit import SchedulerLoop
from streams import BACKFILLS, Case, board_agrees, cases, limits_hold, plan_is_sound


def reserve_holds(loop: SchedulerLoop, plan: Plan) -> None:
    """Ordinary work takes a node on which nothing runs only if as many are left as the pool's rules keep."""
    let_go = {claim.job for claim in plan.claims if not claim.seats}
    claimed = {seat.node for job in loop.state.jobs.values() if job.id not in let_go for seat in job.claim}
    for pool in loop.pools:
        rules = loop.rules.pool(pool)
        closed = [one for one in rules.maintenance if one.start <= loop.now < one.end]
        idle = {
            node.name for node in loop.state.nodes.values()
            if node.pool == pool and node.health == "healthy" and not node.jobs and node.name not in claimed
            and not any(not one.nodes or node.name in one.nodes for one in closed)
        }  # fmt: skip
        for decided in (*plan.starts, *plan.claims):
            if spares_for(loop.job(decided.job), loop.rules) == pool:
                idle -= {seat.node for seat in decided.seats}
        ordinary = {seat.node for decided in (*plan.starts, *plan.claims) for seat in decided.seats} & idle
        assert len(idle - ordinary) >= min(rules.spares, len(idle)), f"at {loop.now} of {sorted(idle)}: {plan}"


def loop_of(nodes: int, spares: int, pool: PoolRules | None = None, **rules: object) -> SchedulerLoop:
    there = (pool or PoolRules()).model_copy(update={"spares": spares})
    made = SchedulerLoop(Rules(pools={"main": there}, **rules), checks=[plan_is_sound, board_agrees, reserve_holds])
    made.nodes(nodes)
    return made


@settings(max_examples=120, deadline=None)
@given(cases(), st.integers(1, 2))
def test_whatever_happens_ordinary_work_leaves_the_spares(case: Case, spares: int):
    pools = {name: case.rules.pool(name).model_copy(update={"spares": spares}) for name in case.pools}
    case.rules = case.rules.model_copy(update={"pools": pools})
    note(str(case))
    loop = case.loop()
    loop.checks += [plan_is_sound, limits_hold, board_agrees, reserve_holds]
    loop.run(until=600.0)


@pytest.mark.parametrize("backfill", BACKFILLS)
def test_a_gang_that_lost_a_node_starts_at_once_before_the_queue(backfill: str):
    loop = loop_of(6, 2, defaults=QueueRules(order="fifo", backfill=backfill))
    loop.submit("gang", 1000.0, num_nodes=4, gpus=8)
    loop.submit("next", 100.0, num_nodes=3, gpus=8, priority=95)
    loop.run(until=10.0)
    assert loop.running() == {"gang"}
    assert sorted(loop.sits("gang")) == ["n0", "n1", "n2", "n3"]
    loop.lose("n1")
    loop.run(until=20.0)
    assert loop.times("starts", "gang") == [0.0, 10.0]
    assert not loop.times("starts", "next")
    loop.node("n1")  # it fills the reserve again: one of two free nodes of six is for nobody else
    loop.run(until=1005.0)
    assert not loop.times("starts", "next")
    loop.run(until=1100.0)
    assert loop.times("starts", "next") == [1010.0]


@pytest.mark.parametrize("code", ["killed_by_signal", "launcher_lost", "launch_failed"])
def test_another_end_gives_no_spare(code: str):
    """A program can kill its own launcher: that is not the loss of a node."""
    loop = loop_of(3, 1)
    loop.submit("gang", 1000.0, num_nodes=2, gpus=8, retry={"backoff": "0s", "max_restarts": 3})
    loop.run(until=10.0)
    loop.health("n0", "draining")
    loop.fail("gang", code)
    loop.run(until=50.0)
    assert loop.running() == set()
    (why,) = explain(loop.state, loop.job("gang"), loop.now)
    assert (why.code, why.data["never"]) == ("spares_kept", True)
    assert "n0 (draining)" in why.message


def test_an_elastic_gang_gets_back_what_it_had_and_no_more():
    loop = loop_of(5, 2)
    loop.submit("other", 1000.0, num_nodes=1, gpus=8)
    loop.submit("gang", 1000.0, num_nodes={"min": 1, "max": 4}, gpus=8)
    loop.run(until=10.0)
    assert len(loop.sits("gang")) == 2
    loop.lose(loop.sits("gang")[0])
    loop.run(until=20.0)
    assert len(loop.sits("gang")) == 2
    assert loop.running() == {"other", "gang"}


def test_what_is_left_of_a_used_spare_is_open_to_all():
    loop = loop_of(2, 1)
    loop.submit("half", 1000.0, gpus=4)
    loop.submit("big", 1000.0, gpus=6)
    loop.run(until=10.0)
    assert loop.running() == {"half"}
    loop.lose("n0")
    loop.submit("small", 10.0, gpus=4)
    loop.run(until=15.0)
    assert (loop.sits("half"), loop.sits("small")) == (("n1",), ("n1",))


def test_nobody_is_preempted_to_fill_the_reserve():
    """The reserve lacks a node, and a job that goes first takes one: exactly one gang leaves for it."""
    rules = {"preemption": Preemption(min_run=0.0), "defaults": QueueRules(order="priority", ageing=None)}
    loop = loop_of(5, 2, **rules)
    for name in ("a", "b", "c"):
        loop.submit(name, 5000.0, gpus=8, priority=20)
    loop.run(until=10.0)
    assert loop.running() == {"a", "b", "c"}
    loop.lose(loop.sits("a")[0])
    loop.lose("n4")
    loop.run(until=400.0)
    assert loop.running() == {"a", "b", "c"}, "the one that lost its node has the last spare"
    assert not loop.order("stopping")
    loop.submit("first", 100.0, gpus=8, priority=100)
    loop.run(until=480.0)
    assert len(loop.order("stopping")) == 1
    assert loop.times("starts", "first")


def test_quota_that_is_not_lent_is_not_covered_by_the_spares():
    queues = {"own": QueueRules(quota={"main": 8}, lend=False), "other": QueueRules()}
    loop = SchedulerLoop(
        Rules(pools={"main": PoolRules(spares=1)}, queues=queues),
        {"own": "default", "other": "default"},
        checks=[plan_is_sound, board_agrees, reserve_holds],
    )
    loop.nodes(3)
    loop.submit("x", 1000.0, queue="other", gpus=8)
    loop.submit("y", 1000.0, queue="other", gpus=8)
    loop.run(until=10.0)
    assert loop.running() == {"x"}
    loop.submit("z", 1000.0, queue="own", gpus=8)
    loop.run(until=20.0)
    assert loop.running() == {"x", "z"}


def test_the_largest_nodes_are_kept_and_none_in_maintenance():
    away = Maintenance(start=0.0, end=50.0, nodes=("n0",))
    loop = loop_of(2, 1, PoolRules(maintenance=(away,)))
    loop.node("n9", gpus=4)
    loop.submit("large", 10.0, gpus=8)
    loop.submit("small", 500.0, gpus=4)
    loop.run(until=40.0)
    assert (loop.running(), loop.sits("small")) == ({"small"}, ("n9",))
    loop.run(until=60.0)
    assert loop.times("starts", "large") == [50.0]


def test_why_and_the_forecast_know_the_spares():
    loop = loop_of(4, 2)
    loop.submit("runs", 1000.0, num_nodes=2, gpus=8, max_duration="20m")
    loop.submit("waits", 10.0, num_nodes=2, gpus=8)
    loop.submit("never", 10.0, num_nodes=3, gpus=8)
    loop.run(until=10.0)
    reasons = [one for name in ("waits", "never") for one in explain(loop.state, loop.job(name), loop.now)]
    waits, never = (one for one in reasons if one.code != "behind_in_queue")
    assert (waits.code, waits.data["never"], waits.data["spares"]) == ("spares_kept", False, 2)
    assert (never.code, never.data["never"]) == ("spares_kept", True)
    assert "can't start" in never.message
    found = forecast(loop.state, loop.now, jobs=["waits", "never"], samples=4)
    assert found["waits"].p50 is not None
    assert found["waits"].p50 > loop.now + 60
    assert found["never"].never


def test_what_is_left_of_kinds_of_nodes():
    large, small = Resources(64_000, 10, 8, "H100"), Resources(64_000, 10)
    assert without_spares({small: 3, large: 2}, 0) == {small: 3, large: 2}
    assert without_spares({small: 3, large: 2}, 1) == {small: 3, large: 1}
    assert without_spares({small: 3, large: 2}, 4) == {small: 1, large: 0}
    assert without_spares({small: 3, large: 2}, 9) == {small: 0, large: 0}
