"""What is kept between rounds never changes a decision: small histories in which it once could have."""

from __future__ import annotations

import pytest

from muster.core.rules import Maintenance, PoolRules, Preemption, ProjectRules, QueueRules, Rules
from muster.core.seat import Seat
from muster.sched.policies import POLICIES
from muster.sched.schedule import schedule
from streams import board_agrees, limits_hold, plan_is_sound
from worlds import World

CHECKS = [plan_is_sound, limits_hold, board_agrees]
QUIET = Preemption(enabled=False)
QUICK = Preemption(grace=10.0, min_run=0.0, restart_cost=0.0)


def claim(world: World, job: str, *seats: Seat) -> None:
    world.event("job.claimed", job, seats=[seat.to_doc() for seat in seats])


def two_queues(rules: Rules) -> World:
    return World(rules, {"a": "default", "b": "default"}, checks=list(CHECKS))


def test_the_end_of_a_head_that_is_stopped_lets_those_behind_it_go():
    """Nothing became free: the one who held them up has left the line."""
    for backfill in ("none", "easy", "conservative"):
        world = World(
            Rules(defaults=QueueRules(order="fifo", backfill=backfill), preemption=QUIET), checks=list(CHECKS)
        )
        world.nodes(2, gpus=4)
        world.submit("runs", 1000, gpus=4, max_duration=1000)
        world.tick()
        world.submit("wide", 1000, gpus=4, num_nodes=2, max_duration=1000)
        world.submit("behind", 5000, gpus=4, max_duration=5000)
        world.tick()
        assert world.running() == {"runs"}
        world.stop("wide")
        world.tick()
        assert world.running() == {"runs", "behind"}, backfill


def test_a_reservation_holds_in_rounds_that_its_queue_has_no_part_in():
    """The queue that keeps a place is not looked at again; one that lets whoever fits pass is."""
    rules = Rules(
        estimates="declared", preemption=QUIET,
        queues={"a": QueueRules(order="fifo", backfill="easy"), "b": QueueRules(order="fifo", backfill="greedy")},
    )  # fmt: skip
    world = two_queues(rules)
    world.nodes(2, gpus=4)
    world.submit("runs", 100, queue="a", gpus=4, max_duration=100)
    world.tick()
    world.submit("wide", 100, queue="a", gpus=4, num_nodes=2, max_duration=100)
    world.submit("long", 1000, queue="b", gpus=4, max_duration=1000)
    world.tick()
    assert world.running() == {"runs"}
    world.now = 10.0
    world.submit("other", 10, queue="b", gpus=1, max_duration=10)
    world.tick()
    assert world.running() == {"runs", "other"}
    world.run(until=100.0)
    assert world.times("starts", "wide") == [100.0]


def test_a_job_whose_seats_are_kept_does_not_start_elsewhere():
    world = World(Rules(preemption=QUICK, defaults=QueueRules(order="priority")), checks=list(CHECKS))
    world.node("n0", gpus=4)
    world.submit("low", 1000, gpus=4, priority=20)
    world.tick()
    world.submit("high", 1000, gpus=4, priority=90, stop_grace=10)
    world.tick()
    assert world.job("low").phase == "stopping"
    world.node("n1", gpus=4)
    world.submit("next", 1000, gpus=4, priority=50)
    world.tick()
    assert world.sits("next") == ("n1",)
    world.run(until=50.0)
    assert world.sits("high") == ("n0",)


def test_a_claim_that_is_let_go_frees_nothing_of_one_that_starts():
    """Both keep seats on one node; one of them starts in the round in which the other loses a node."""
    world = World(Rules(preemption=QUICK, defaults=QueueRules(order="fifo")), checks=list(CHECKS))
    world.nodes(2, gpus=2)
    world.submit("one", 100, gpus=1)
    world.submit("both", 100, gpus=1, num_nodes=2)
    claim(world, "one", Seat("n0", (0,)))
    claim(world, "both", Seat("n0", (1,)), Seat("n1", (0,)))
    world.health("n1", "draining")
    world.submit("more", 100, gpus=1)
    world.submit("most", 100, gpus=1)
    world.tick()
    assert world.job("one").attempt is not None
    assert sorted(world.running()) == ["more", "one"]


def test_two_claims_on_one_node_wait_for_processors_for_both():
    world = World(Rules(preemption=QUICK, defaults=QueueRules(order="fifo")), checks=list(CHECKS))
    world.node("n0", gpus=0, cpus=8)
    world.submit("sits", 100, cpus=4)
    world.tick()
    world.submit("one", 100, cpus=4)
    world.submit("two", 100, cpus=4)
    claim(world, "one", Seat("n0"))
    claim(world, "two", Seat("n0"))
    world.tick()
    assert world.running() == {"sits", "one"}
    world.run(until=100.0)
    assert "two" in world.running()


def test_a_plan_that_is_not_carried_out_leaves_victims_and_seats_as_they_were():
    """Of those who give way, an elastic gang that keeps some of its seats among them."""
    world = World(Rules(preemption=QUICK, defaults=QueueRules(order="priority")), checks=list(CHECKS))
    world.nodes(3, gpus=2)
    world.submit("wide", 1000, gpus=2, num_nodes={"min": 1, "max": 3}, priority=20)
    world.tick()
    world.now = 5.0
    world.submit("high", 100, gpus=2, priority=90)
    first = schedule(world.state, world.now, world.board)
    assert [one.job for one in first.yields] == ["wide"]
    for _ in range(3):
        again = schedule(world.state, world.now, world.board)
        assert (again.yields, set(again.claims)) == (first.yields, set(first.claims))


def test_a_node_that_comes_back_can_be_what_a_wide_gang_lacks_beside_a_victim():
    world = World(Rules(preemption=QUICK, defaults=QueueRules(order="priority")), checks=list(CHECKS))
    world.nodes(2, gpus=2)
    world.health("n1", "draining")
    world.submit("low", 1000, gpus=2, priority=20)
    world.tick()
    world.submit("wide", 100, gpus=2, num_nodes=2, priority=90)
    world.tick()
    assert world.running() == {"low"}
    world.health("n1", "healthy")
    world.tick()
    assert world.job("low").phase == "stopping"


def test_a_limit_that_opens_in_one_pool_lets_a_job_ask_in_another():
    rules = Rules(
        preemption=QUICK,
        defaults=QueueRules(order="priority"),
        projects={"p": ProjectRules(max_running=2)},
    )
    world = World(rules, {"a": "p", "b": "q"}, {"main": False, "other": False}, checks=list(CHECKS))
    world.node("m0", gpus=1)
    world.node("o0", gpus=2, pool="other")
    world.submit("low", 1000, queue="b", gpus=1, priority=20, pool="main")
    for name in ("x", "y"):
        world.submit(name, 100, queue="a", gpus=1, pool="other")
    world.tick()
    world.submit("high", 100, queue="a", gpus=1, priority=90, pool="main")
    world.tick()
    assert world.job("low").phase == "running"
    world.stop("x", grace=5.0)
    world.run(until=50.0)
    assert world.times("stopping", "low")


def test_a_pool_that_is_closed_by_quota_is_tried_again_when_the_quota_opens():
    """Of its two pools one is full and the other beyond its queue's limit; a gang of its queue is asked to leave."""
    rules = Rules(
        preemption=Preemption(enabled=False),
        queues={"a": QueueRules(order="fifo", quota={"main": 2}, borrow={}), "b": QueueRules(order="fifo")},
    )
    world = World(
        rules, {"a": "default", "b": "default"}, {"main": False, "other": False}, checks=list(CHECKS)
    )  # fmt: skip
    world.node("m0", gpus=4)
    world.node("o0", gpus=1, pool="other")
    rules = rules.model_copy(
        update={"queues": {**rules.queues, "a": rules.queues["a"].model_copy(update={"borrow": {"other": 8}})}}
    )
    world.set_rules(rules)
    world.submit("full", 1000, queue="b", gpus=1, pool="other")
    world.submit("x", 1000, queue="a", gpus=1, pool="main")
    world.submit("y", 1000, queue="a", gpus=1, pool="main")
    world.tick()
    world.submit("waits", 100, queue="a", gpus=1)
    world.tick()
    assert "waits" not in world.running()
    world.stop("x", grace=20.0)
    world.tick()
    assert world.sits("waits") == ("m0",)


def test_a_node_that_is_lost_counts_the_same_until_its_gang_is_found_dead():
    rules = Rules(preemption=QUIET, defaults=QueueRules(order="fifo", quota={"main": 2}, borrow={}))
    world = World(rules, checks=list(CHECKS))
    world.nodes(2, gpus=2)
    world.submit("x", 1000, gpus=2)
    world.tick()
    world.lose("n0", noticed=10.0)
    world.submit("y", 100, gpus=2)
    world.run(until=5.0)
    assert world.running() == {"x"}
    world.run(until=30.0)
    assert "y" in world.running()


def test_jobs_of_a_group_are_near_to_those_who_run_now():
    """Not to those who have left, and to those who came after it began to wait."""
    world = World(Rules(preemption=QUIET, defaults=QueueRules(order="fifo")), checks=list(CHECKS))
    world.nodes(3, gpus=2)
    for name in ("x0", "x1", "x2"):
        world.submit(name, 1000, gpus=2)
    world.tick()
    world.submit("first", 1000, gpus=1, placement="group", group="g")
    world.submit("second", 1000, gpus=1, placement="group", group="g")
    world.tick()
    world.stop("x2", grace=1.0)
    world.run(until=2.0)
    assert world.sits("first") == world.sits("second")
    gone = world.sits("first")
    world.stop("first", grace=1.0)
    world.stop("second", grace=1.0)
    world.stop("x0", grace=1.0)
    world.submit("third", 1000, gpus=1, placement="group", group="g")
    world.run(until=10.0)
    world.submit("fourth", 1000, gpus=1, placement="group", group="g")
    world.run(until=20.0)
    assert world.sits("fourth") == world.sits("third")
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
    world = World(rules, checks=list(CHECKS))
    world.node("n0", gpus=1)
    for i in range(3):
        world.submit(f"j{i}", 130, gpus=1)
    world.run()
    assert not world.state.jobs


def test_a_maintenance_that_is_too_near_for_one_does_not_stop_a_shorter_job_that_asks_for_the_same():
    rules = Rules(
        estimates="declared", preemption=QUIET, defaults=QueueRules(order="fifo"),
        pools={"main": PoolRules(maintenance=(Maintenance(start=1000.0, end=2000.0),))},
    )  # fmt: skip
    world = World(rules, checks=list(CHECKS))
    world.node("n0", gpus=2)
    world.submit("long", 1500, gpus=1, max_duration=1500)
    world.submit("short", 500, gpus=1, max_duration=500)
    world.tick()
    assert world.running() == {"short"}
    world.run(until=2000.0)
    assert world.times("starts", "long") == [2000.0]


def test_a_fair_round_that_is_not_carried_out_charges_nobody():
    world = World(Rules(between="fair"), checks=list(CHECKS))
    world.node("n0", gpus=4)
    world.submit("one", 40, user="eve", gpus=4)
    world.submit("two", 90, user="bob", gpus=4)
    plans = [schedule(world.state, world.now, world.board).starts for _ in range(4)]
    assert plans == [plans[0]] * 4


def test_fair_share_with_queues_that_are_served_in_their_order():
    for backfill in ("none", "easy", "conservative"):
        world = World(Rules(between="fair", defaults=QueueRules(backfill=backfill)), checks=list(CHECKS))
        world.node("n0", gpus=1)
        for i in range(3):
            world.submit(f"j{i}", 10, gpus=1)
        world.run()
        assert not world.state.jobs, backfill


def test_one_whose_seats_are_gone_asks_again_at_once():
    world = World(Rules(preemption=QUICK, defaults=QueueRules(order="priority")), checks=list(CHECKS))
    world.nodes(4, gpus=1)
    for i in range(4):
        world.submit(f"low{i}", 1000, gpus=1, priority=20)
    world.run(until=5.0)
    world.submit("high", 100, gpus=1, num_nodes=2, priority=90)
    world.tick()
    first = {seat.node for seat in world.job("high").claim}
    world.health(min(first), "draining")
    world.tick()
    assert len(world.job("high").claim) == 2
    assert not first & {seat.node for seat in world.job("high").claim}


def test_a_reservation_holds_for_other_queues_in_later_rounds():
    """Its queue keeps a place while nothing changes for it; meanwhile one of another queue comes."""
    rules = Rules(
        estimates="declared", preemption=QUIET,
        queues={"a": QueueRules(order="fifo", backfill="conservative"), "b": QueueRules(order="fifo")},
    )  # fmt: skip
    world = two_queues(rules)
    world.nodes(2, gpus=4)
    world.submit("runs", 100, queue="b", gpus=2, num_nodes=2, max_duration=100)
    world.tick()
    world.submit("whole", 100, queue="a", gpus=4, max_duration=100)
    world.run(until=10.0)
    for i in range(3):
        world.now += 10.0
        world.submit(f"long{i}", 1000, queue="b", gpus=2, max_duration=1000)
        world.tick()
    world.run()
    assert world.times("starts", "whole") == [100.0]


def test_under_fair_share_the_order_of_a_queue_changes_with_what_its_users_get():
    """Who comes first changes with every start and with time: a queue that lets nobody pass is looked at for that."""
    world = World(Rules(between="fair", defaults=QueueRules(backfill="none", preempts=False)), checks=list(CHECKS))
    world.nodes(2, gpus=4)
    world.submit("both", 110, user="eve", gpus=1, num_nodes=2)
    world.run(until=35.0)
    world.submit("whole", 115, user="ada", gpus=4, priority=75)
    world.submit("other", 10, user="bob")
    world.run(until=80.0)
    world.submit("high", 35, user="ada", priority=95)
    world.tick()
    assert {"high", "other"} <= world.running()


def test_who_goes_first_as_overdue_changes_with_who_runs_as_overdue():
    """In a queue that lets nobody pass: one that was behind comes first when what is protected is taken up."""
    rules = Rules(defaults=QueueRules(order="fifo", overdue=150.0, backfill="none"), preemption=QUIET)
    world = World(rules, checks=list(CHECKS))
    world.node("n0", gpus=4, cpus=16)
    for at, name, seconds, gpus in (
        (10.0, "j4", 135, 1), (15.0, "j1", 130, 1), (95.0, "j9", 105, 0.25), (105.0, "j2", 90, 2), (105.0, "j3", 35, 4),
        (120.0, "j6", 70, 4), (130.0, "j8", 100, 0.5), (160.0, "j7", 120, 4), (175.0, "j5", 85, 0),
    ):  # fmt: skip
        world.after(at, lambda name=name, seconds=seconds, gpus=gpus: world.submit(name, seconds, gpus=gpus))
    world.run()
    assert not world.state.jobs


def test_who_is_within_his_quota_changes_with_what_his_queue_uses():
    """In a queue that lets nobody pass: what another that sits in it takes moves the first one back."""
    rules = Rules(
        preemption=QUIET, defaults=QueueRules(order="fifo"),
        queues={
            "b": QueueRules(order="fifo", backfill="none", quota={"main": 4}),
            "c": QueueRules(order="fifo", parent="b"),
        },
    )  # fmt: skip
    world = World(rules, {"a": "p", "b": "p", "c": "p"}, checks=list(CHECKS))
    world.node("n0", gpus=2, cpus=8)
    world.submit("busy", 100, queue="a", gpus=2)
    world.tick()
    world.submit("wide", 100, queue="b", gpus=2, num_nodes=2)
    world.submit("small", 100, queue="b", cpus=1)
    world.submit("child", 100, queue="c", gpus=2)
    world.run(until=150.0)
    assert {"child", "small"} <= world.running()
