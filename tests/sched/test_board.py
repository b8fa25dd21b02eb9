"""What is kept between rounds never changes a decision: small histories in which it once could have."""

from __future__ import annotations

import pytest

from muster.core.rules import Maintenance, PoolRules, Preemption, ProjectRules, QueueRules, Rules
from muster.core.seat import Seat
from muster.sched.policies import POLICIES
from muster.sched.schedule import schedule
from scheduler_kit import SchedulerLoop
from streams import board_agrees, limits_hold, plan_is_sound

CHECKS = [plan_is_sound, limits_hold, board_agrees]
QUIET = Preemption(enabled=False)
QUICK = Preemption(grace=10.0, min_run=0.0, restart_cost=0.0)


def claim(loop: SchedulerLoop, job: str, *seats: Seat) -> None:
    loop.event("job.claimed", job, seats=[seat.to_doc() for seat in seats])


def two_queues(rules: Rules) -> SchedulerLoop:
    return SchedulerLoop(rules, {"a": "default", "b": "default"}, checks=list(CHECKS))


def test_the_end_of_a_head_that_is_stopped_lets_those_behind_it_go():
    """Nothing became free: the one who held them up has left the line."""
    for backfill in ("none", "easy", "conservative"):
        loop = SchedulerLoop(
            Rules(defaults=QueueRules(order="fifo", backfill=backfill), preemption=QUIET), checks=list(CHECKS)
        )
        loop.nodes(2, gpus=4)
        loop.submit("runs", 1000, gpus=4, max_duration=1000)
        loop.tick()
        loop.submit("wide", 1000, gpus=4, num_nodes=2, max_duration=1000)
        loop.submit("behind", 5000, gpus=4, max_duration=5000)
        loop.tick()
        assert loop.running() == {"runs"}
        loop.stop("wide")
        loop.tick()
        assert loop.running() == {"runs", "behind"}, backfill


def test_a_reservation_holds_in_rounds_that_its_queue_has_no_part_in():
    """The queue that keeps a place is not looked at again; one that lets whoever fits pass is."""
    rules = Rules(
        estimates="declared", preemption=QUIET,
        queues={"a": QueueRules(order="fifo", backfill="easy"), "b": QueueRules(order="fifo", backfill="greedy")},
    )  # fmt: skip
    loop = two_queues(rules)
    loop.nodes(2, gpus=4)
    loop.submit("runs", 100, queue="a", gpus=4, max_duration=100)
    loop.tick()
    loop.submit("wide", 100, queue="a", gpus=4, num_nodes=2, max_duration=100)
    loop.submit("long", 1000, queue="b", gpus=4, max_duration=1000)
    loop.tick()
    assert loop.running() == {"runs"}
    loop.now = 10.0
    loop.submit("other", 10, queue="b", gpus=1, max_duration=10)
    loop.tick()
    assert loop.running() == {"runs", "other"}
    loop.run(until=100.0)
    assert loop.times("starts", "wide") == [100.0]


def test_a_job_whose_seats_are_kept_does_not_start_elsewhere():
    loop = SchedulerLoop(Rules(preemption=QUICK, defaults=QueueRules(order="priority")), checks=list(CHECKS))
    loop.node("n0", gpus=4)
    loop.submit("low", 1000, gpus=4, priority=20)
    loop.tick()
    loop.submit("high", 1000, gpus=4, priority=90, stop_grace=10)
    loop.tick()
    assert loop.job("low").phase == "stopping"
    loop.node("n1", gpus=4)
    loop.submit("next", 1000, gpus=4, priority=50)
    loop.tick()
    assert loop.sits("next") == ("n1",)
    loop.run(until=50.0)
    assert loop.sits("high") == ("n0",)


def test_a_claim_that_is_let_go_frees_nothing_of_one_that_starts():
    """Both keep seats on one node; one of them starts in the round in which the other loses a node."""
    loop = SchedulerLoop(Rules(preemption=QUICK, defaults=QueueRules(order="fifo")), checks=list(CHECKS))
    loop.nodes(2, gpus=2)
    loop.submit("one", 100, gpus=1)
    loop.submit("both", 100, gpus=1, num_nodes=2)
    claim(loop, "one", Seat("n0", (0,)))
    claim(loop, "both", Seat("n0", (1,)), Seat("n1", (0,)))
    loop.health("n1", "draining")
    loop.submit("more", 100, gpus=1)
    loop.submit("most", 100, gpus=1)
    loop.tick()
    assert loop.job("one").attempt is not None
    assert sorted(loop.running()) == ["more", "one"]


def test_two_claims_on_one_node_wait_for_processors_for_both():
    loop = SchedulerLoop(Rules(preemption=QUICK, defaults=QueueRules(order="fifo")), checks=list(CHECKS))
    loop.node("n0", gpus=0, cpus=8)
    loop.submit("sits", 100, cpus=4)
    loop.tick()
    loop.submit("one", 100, cpus=4)
    loop.submit("two", 100, cpus=4)
    claim(loop, "one", Seat("n0"))
    claim(loop, "two", Seat("n0"))
    loop.tick()
    assert loop.running() == {"sits", "one"}
    loop.run(until=100.0)
    assert "two" in loop.running()


def test_a_plan_that_is_not_carried_out_leaves_victims_and_seats_as_they_were():
    """Of those who give way, an elastic gang that keeps some of its seats among them."""
    loop = SchedulerLoop(Rules(preemption=QUICK, defaults=QueueRules(order="priority")), checks=list(CHECKS))
    loop.nodes(3, gpus=2)
    loop.submit("wide", 1000, gpus=2, num_nodes={"min": 1, "max": 3}, priority=20)
    loop.tick()
    loop.now = 5.0
    loop.submit("high", 100, gpus=2, priority=90)
    first = schedule(loop.state, loop.now, loop.board)
    assert [one.job for one in first.yields] == ["wide"]
    for _ in range(3):
        again = schedule(loop.state, loop.now, loop.board)
        assert (again.yields, set(again.claims)) == (first.yields, set(first.claims))


def test_a_node_that_comes_back_can_be_what_a_wide_gang_lacks_beside_a_victim():
    loop = SchedulerLoop(Rules(preemption=QUICK, defaults=QueueRules(order="priority")), checks=list(CHECKS))
    loop.nodes(2, gpus=2)
    loop.health("n1", "draining")
    loop.submit("low", 1000, gpus=2, priority=20)
    loop.tick()
    loop.submit("wide", 100, gpus=2, num_nodes=2, priority=90)
    loop.tick()
    assert loop.running() == {"low"}
    loop.health("n1", "healthy")
    loop.tick()
    assert loop.job("low").phase == "stopping"


def test_a_limit_that_opens_in_one_pool_lets_a_job_ask_in_another():
    rules = Rules(
        preemption=QUICK,
        defaults=QueueRules(order="priority"),
        projects={"p": ProjectRules(max_running=2)},
    )
    loop = SchedulerLoop(rules, {"a": "p", "b": "q"}, {"main": False, "other": False}, checks=list(CHECKS))
    loop.node("m0", gpus=1)
    loop.node("o0", gpus=2, pool="other")
    loop.submit("low", 1000, queue="b", gpus=1, priority=20, pool="main")
    for name in ("x", "y"):
        loop.submit(name, 100, queue="a", gpus=1, pool="other")
    loop.tick()
    loop.submit("high", 100, queue="a", gpus=1, priority=90, pool="main")
    loop.tick()
    assert loop.job("low").phase == "running"
    loop.stop("x", grace=5.0)
    loop.run(until=50.0)
    assert loop.times("stopping", "low")


def test_a_pool_that_is_closed_by_quota_is_tried_again_when_the_quota_opens():
    """Of its two pools one is full and the other beyond its queue's limit; a gang of its queue is asked to leave."""
    rules = Rules(
        preemption=Preemption(enabled=False),
        queues={"a": QueueRules(order="fifo", quota={"main": 2}, borrow={}), "b": QueueRules(order="fifo")},
    )
    loop = SchedulerLoop(
        rules, {"a": "default", "b": "default"}, {"main": False, "other": False}, checks=list(CHECKS)
    )  # fmt: skip
    loop.node("m0", gpus=4)
    loop.node("o0", gpus=1, pool="other")
    rules = rules.model_copy(
        update={"queues": {**rules.queues, "a": rules.queues["a"].model_copy(update={"borrow": {"other": 8}})}}
    )
    loop.set_rules(rules)
    loop.submit("full", 1000, queue="b", gpus=1, pool="other")
    loop.submit("x", 1000, queue="a", gpus=1, pool="main")
    loop.submit("y", 1000, queue="a", gpus=1, pool="main")
    loop.tick()
    loop.submit("waits", 100, queue="a", gpus=1)
    loop.tick()
    assert "waits" not in loop.running()
    loop.stop("x", grace=20.0)
    loop.tick()
    assert loop.sits("waits") == ("m0",)


def test_a_node_that_is_lost_counts_the_same_until_its_gang_is_found_dead():
    rules = Rules(preemption=QUIET, defaults=QueueRules(order="fifo", quota={"main": 2}, borrow={}))
    loop = SchedulerLoop(rules, checks=list(CHECKS))
    loop.nodes(2, gpus=2)
    loop.submit("x", 1000, gpus=2)
    loop.tick()
    loop.lose("n0", noticed=10.0)
    loop.submit("y", 100, gpus=2)
    loop.run(until=5.0)
    assert loop.running() == {"x"}
    loop.run(until=30.0)
    assert (loop.running(), loop.sits("x"), loop.times("starts", "x")) == ({"x"}, ("n1",), [0.0, 10.0])


def test_jobs_of_a_group_are_near_to_those_who_run_now():
    """Not to those who have left, and to those who came after it began to wait."""
    loop = SchedulerLoop(Rules(preemption=QUIET, defaults=QueueRules(order="fifo")), checks=list(CHECKS))
    loop.nodes(3, gpus=2)
    for name in ("x0", "x1", "x2"):
        loop.submit(name, 1000, gpus=2)
    loop.tick()
    loop.submit("first", 1000, gpus=1, placement="group", group="g")
    loop.submit("second", 1000, gpus=1, placement="group", group="g")
    loop.tick()
    loop.stop("x2", grace=1.0)
    loop.run(until=2.0)
    assert loop.sits("first") == loop.sits("second")
    gone = loop.sits("first")
    loop.stop("first", grace=1.0)
    loop.stop("second", grace=1.0)
    loop.stop("x0", grace=1.0)
    loop.submit("third", 1000, gpus=1, placement="group", group="g")
    loop.run(until=10.0)
    loop.submit("fourth", 1000, gpus=1, placement="group", group="g")
    loop.run(until=20.0)
    assert loop.sits("fourth") == loop.sits("third")
    assert gone


@pytest.mark.parametrize("order", sorted(POLICIES))
def test_nobody_asks_to_be_woken_now(order: str):
    """At the very moment at which a level, an age, a turn or an escalation is reached it counts as reached."""
    rules = Rules(
        defaults=QueueRules(
            order=order, levels=(50.0, 100.0), overdue=75.0, slice=40.0 if order == "turns" else None,
        ),
        preemption=QUICK,
    )  # fmt: skip
    loop = SchedulerLoop(rules, checks=list(CHECKS))
    loop.node("n0", gpus=1)
    for i in range(3):
        loop.submit(f"j{i}", 130, gpus=1)
    loop.run()
    assert not loop.state.jobs


def test_a_maintenance_that_is_too_near_for_one_does_not_stop_a_shorter_job_that_asks_for_the_same():
    rules = Rules(
        estimates="declared", preemption=QUIET, defaults=QueueRules(order="fifo"),
        pools={"main": PoolRules(maintenance=(Maintenance(start=1000.0, end=2000.0),))},
    )  # fmt: skip
    loop = SchedulerLoop(rules, checks=list(CHECKS))
    loop.node("n0", gpus=2)
    loop.submit("long", 1500, gpus=1, max_duration=1500)
    loop.submit("short", 500, gpus=1, max_duration=500)
    loop.tick()
    assert loop.running() == {"short"}
    loop.run(until=2000.0)
    assert loop.times("starts", "long") == [2000.0]


def test_a_fair_round_that_is_not_carried_out_charges_nobody():
    loop = SchedulerLoop(Rules(between="fair"), checks=list(CHECKS))
    loop.node("n0", gpus=4)
    loop.submit("one", 40, user="eve", gpus=4)
    loop.submit("two", 90, user="bob", gpus=4)
    plans = [schedule(loop.state, loop.now, loop.board).starts for _ in range(4)]
    assert plans == [plans[0]] * 4


def test_fair_share_with_queues_that_are_served_in_their_order():
    for backfill in ("none", "easy", "conservative"):
        loop = SchedulerLoop(Rules(between="fair", defaults=QueueRules(backfill=backfill)), checks=list(CHECKS))
        loop.node("n0", gpus=1)
        for i in range(3):
            loop.submit(f"j{i}", 10, gpus=1)
        loop.run()
        assert not loop.state.jobs, backfill


def test_one_whose_seats_are_gone_asks_again_at_once():
    loop = SchedulerLoop(Rules(preemption=QUICK, defaults=QueueRules(order="priority")), checks=list(CHECKS))
    loop.nodes(4, gpus=1)
    for i in range(4):
        loop.submit(f"low{i}", 1000, gpus=1, priority=20)
    loop.run(until=5.0)
    loop.submit("high", 100, gpus=1, num_nodes=2, priority=90)
    loop.tick()
    first = {seat.node for seat in loop.job("high").claim}
    loop.health(min(first), "draining")
    loop.tick()
    assert len(loop.job("high").claim) == 2
    assert not first & {seat.node for seat in loop.job("high").claim}


def test_a_reservation_holds_for_other_queues_in_later_rounds():
    """Its queue keeps a place while nothing changes for it; meanwhile one of another queue comes."""
    rules = Rules(
        estimates="declared", preemption=QUIET,
        queues={"a": QueueRules(order="fifo", backfill="conservative"), "b": QueueRules(order="fifo")},
    )  # fmt: skip
    loop = two_queues(rules)
    loop.nodes(2, gpus=4)
    loop.submit("runs", 100, queue="b", gpus=2, num_nodes=2, max_duration=100)
    loop.tick()
    loop.submit("whole", 100, queue="a", gpus=4, max_duration=100)
    loop.run(until=10.0)
    for i in range(3):
        loop.now += 10.0
        loop.submit(f"long{i}", 1000, queue="b", gpus=2, max_duration=1000)
        loop.tick()
    loop.run()
    assert loop.times("starts", "whole") == [100.0]


def test_under_fair_share_the_order_of_a_queue_changes_with_what_its_users_get():
    """Who comes first changes with every start and with time: a queue that lets nobody pass is looked at for that."""
    loop = SchedulerLoop(
        Rules(between="fair", defaults=QueueRules(backfill="none", preempts=False)), checks=list(CHECKS)
    )
    loop.nodes(2, gpus=4)
    loop.submit("both", 110, user="eve", gpus=1, num_nodes=2)
    loop.run(until=35.0)
    loop.submit("whole", 115, user="ada", gpus=4, priority=75)
    loop.submit("other", 10, user="bob")
    loop.run(until=80.0)
    loop.submit("high", 35, user="ada", priority=95)
    loop.tick()
    assert {"high", "other"} <= loop.running()


def test_who_goes_first_as_overdue_changes_with_who_runs_as_overdue():
    """In a queue that lets nobody pass: one that was behind comes first when what is protected is taken up."""
    rules = Rules(defaults=QueueRules(order="fifo", overdue=150.0, backfill="none"), preemption=QUIET)
    loop = SchedulerLoop(rules, checks=list(CHECKS))
    loop.node("n0", gpus=4, cpus=16)
    for at, name, seconds, gpus in (
        (10.0, "j4", 135, 1), (15.0, "j1", 130, 1), (95.0, "j9", 105, 0.25), (105.0, "j2", 90, 2), (105.0, "j3", 35, 4),
        (120.0, "j6", 70, 4), (130.0, "j8", 100, 0.5), (160.0, "j7", 120, 4), (175.0, "j5", 85, 0),
    ):  # fmt: skip
        loop.after(at, lambda name=name, seconds=seconds, gpus=gpus: loop.submit(name, seconds, gpus=gpus))
    loop.run()
    assert not loop.state.jobs


def test_who_is_within_his_quota_changes_with_what_his_queue_uses():
    """In a queue that lets nobody pass: what another that sits in it takes moves the first one back."""
    rules = Rules(
        preemption=QUIET, defaults=QueueRules(order="fifo"),
        queues={
            "b": QueueRules(order="fifo", backfill="none", quota={"main": 4}),
            "c": QueueRules(order="fifo", parent="b"),
        },
    )  # fmt: skip
    loop = SchedulerLoop(rules, {"a": "p", "b": "p", "c": "p"}, checks=list(CHECKS))
    loop.node("n0", gpus=2, cpus=8)
    loop.submit("busy", 100, queue="a", gpus=2)
    loop.tick()
    loop.submit("wide", 100, queue="b", gpus=2, num_nodes=2)
    loop.submit("small", 100, queue="b", cpus=1)
    loop.submit("child", 100, queue="c", gpus=2)
    loop.run(until=150.0)
    assert {"child", "small"} <= loop.running()


@pytest.mark.parametrize("order", sorted(set(POLICIES) - {"turns", "fifo"}))
def test_a_changed_priority_moves_a_queued_job_and_opens_a_running_one_to_preemption(order):
    for backfill in ("none", "easy", "greedy"):
        rules = Rules(defaults=QueueRules(order=order, backfill=backfill), preemption=QUICK)
        loop = SchedulerLoop(rules, leave=0.0, checks=list(CHECKS))
        loop.nodes(1, gpus=4)
        loop.submit("runs", 1000, gpus=4, priority=90)
        loop.tick()
        for name in ("first", "second", "third"):
            loop.submit(name, 50, gpus=4, priority=50)
        loop.tick()
        loop.set_priority("third", 80)
        loop.set_priority("first", 10)
        loop.tick()
        assert loop.running() == {"runs"}, (order, backfill)
        loop.now = 10.0
        loop.stop("runs", grace=0.0)
        loop.run()
        started = [job for _, what, job, _ in loop.told if what == "starts"]
        assert started[:4] == ["runs", "third", "second", "first"], (order, backfill, started)


def test_a_running_gang_whose_priority_is_lowered_leaves_for_one_that_waits():
    loop = SchedulerLoop(Rules(defaults=QueueRules(order="priority"), preemption=QUICK), checks=list(CHECKS))
    loop.nodes(1, gpus=4)
    loop.submit("runs", 1000, gpus=4, priority=50)
    loop.tick()
    loop.submit("waits", 50, gpus=4, priority=50)
    loop.now = 10.0
    loop.tick()
    assert loop.running() == {"runs"}
    loop.set_priority("runs", 20)
    loop.tick()
    assert loop.job("runs").phase == "stopping"
    assert loop.left_for["runs"] == "waits"
