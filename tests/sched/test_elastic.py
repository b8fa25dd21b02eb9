"""Elastic gangs: as many nodes as there are, fewer for others, more when nobody wants them."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings

from muster.core.plan import Plan
from muster.core.rules import Maintenance, PoolRules, Preemption, ProjectRules, QueueRules, Rules
from streams import Case, board_agrees, cases, limits_hold, plan_is_sound
from worlds import World

CHECKS = [plan_is_sound, limits_hold, board_agrees]
QUICK = Preemption(grace=10.0, min_run=0.0, restart_cost=2.0)
FREELY = {"min": 2, "max": 4}


def made(rules: Rules | None = None, nodes: int = 4, gpus: int = 1, **rule: Any) -> World:
    world = World(
        rules or Rules(preemption=QUICK, defaults=QueueRules(**{"order": "priority", **rule})), checks=[*CHECKS]
    )
    world.nodes(nodes, gpus=gpus)
    return world


def test_it_takes_what_there_is_and_no_less_than_it_needs():
    for busy, expected in ((0, 4), (1, 3), (2, 2)):
        world = made()
        for i in range(busy):
            world.submit(f"x{i}", 1000, gpus=1)
        world.tick()
        world.submit("wide", 1000, gpus=1, num_nodes=FREELY)
        world.tick()
        assert len(world.sits("wide")) == expected
    world = made()
    for i in range(3):
        world.submit(f"x{i}", 1000, gpus=1)
    world.tick()
    world.submit("wide", 1000, gpus=1, num_nodes=FREELY)
    world.run(until=500.0)
    assert "wide" not in world.running()


def test_it_gives_up_the_nodes_that_one_who_goes_first_wants_and_goes_on_with_the_rest():
    world = made()
    world.submit("wide", 10_000, gpus=1, num_nodes=FREELY, priority=20)
    world.run(until=100.0)
    world.submit("high", 1000, gpus=1, num_nodes=2, priority=90)
    world.run(until=111.0)
    assert world.reasons("wide") == ["resizing"]
    assert world.times("starts", "high") == world.times("starts", "wide")[1:] == [110.0]
    assert len(world.sits("wide")) == 2
    assert not set(world.sits("wide")) & set(world.sits("high"))


def test_it_leaves_whole_when_the_rest_would_be_too_few():
    world = made()
    world.submit("wide", 10_000, gpus=1, num_nodes=FREELY, priority=20)
    world.run(until=100.0)
    world.submit("high", 1000, gpus=1, num_nodes=3, priority=90)
    world.run(until=111.0)
    assert world.reasons("wide") == ["preempted"]
    assert world.running() == {"high"}


def test_it_grows_right_after_it_saved_when_nobody_waits():
    world = made()
    world.submit("x", 100, gpus=1)
    world.submit("wide", 10_000, gpus=1, num_nodes=FREELY, save=50.0)
    world.run(until=99.0)
    assert len(world.sits("wide")) == 3
    world.run(until=200.0)
    assert len(world.sits("wide")) == 4
    assert world.reasons("wide") == ["resizing"]
    assert world.times("starts", "wide") == [0.0, 110.0]


def test_it_does_not_grow_into_what_somebody_waits_for():
    world = made()
    world.submit("x", 100, gpus=1)
    world.submit("wide", 10_000, gpus=1, num_nodes=FREELY, save=50.0)
    world.tick()
    world.submit("two", 1000, gpus=1, num_nodes=2)
    world.run(until=400.0)
    assert len(world.sits("wide")) == 3


def test_it_does_not_grow_before_a_restart_is_worth_it():
    world = made(Rules(preemption=QUICK.model_copy(update={"restart_cost": 100.0})))
    world.submit("x", 10, gpus=1)
    world.submit("wide", 10_000, gpus=1, num_nodes=FREELY, save=50.0)
    world.run(until=950.0)
    assert len(world.sits("wide")) == 3
    world.run(until=1100.0)
    assert len(world.sits("wide")) == 4


def test_it_grows_past_the_node_that_it_sits_on_already():
    """That node has the least to spare and would be taken first."""
    world = made(nodes=2, gpus=2)
    world.submit("x", 100, gpus=2)
    world.submit("wide", 10_000, gpus=1, num_nodes={"min": 1, "max": 2}, save=50.0)
    world.run(until=200.0)
    assert len(world.sits("wide")) == 2


def test_it_does_not_grow_past_quota_or_limits():
    limited = [
        Rules(preemption=QUICK, queues={"default": QueueRules(quota={"main": 3}, borrow={})}),
        Rules(preemption=QUICK, defaults=QueueRules(max_accelerators_per_user=3)),
        Rules(preemption=QUICK, projects={"default": ProjectRules(max_accelerators=3)}),
        Rules(preemption=QUICK, queues={"other": QueueRules(quota={"main": 3}, lend=False)}),
    ]
    for rules in limited:
        world = World(rules, {"default": "default", "other": "default"}, checks=[*CHECKS])
        world.nodes(2, gpus=1)
        world.submit("wide", 10_000, gpus=1, num_nodes=FREELY, save=50.0)
        world.run(until=10.0)
        world.nodes(6, gpus=1, prefix="m")
        world.run(until=400.0)
        assert len(world.sits("wide")) <= 5 if "other" in rules.queues else 3


def test_two_grow_into_what_is_free_without_taking_it_twice():
    world = made(nodes=2)
    for name in ("one", "two"):
        world.submit(name, 10_000, gpus=1, num_nodes={"min": 1, "max": 3}, save=50.0)
    world.tick()
    world.submit("x", 1, gpus=1)
    world.nodes(3, prefix="m", gpus=1)
    world.run(until=500.0)
    sits = [*world.sits("one"), *world.sits("two")]
    assert len(sits) == len(set(sits)) == 5


def test_two_that_grow_at_once_stay_within_the_limit_together():
    """A gang that stops to grow no longer counts, but what is kept for it does."""
    world = made(Rules(preemption=QUICK, queues={"default": QueueRules(quota={"main": 4}, borrow={})}), nodes=0)
    for name in ("one", "two"):
        world.nodes(1, prefix=name, gpus=1)
        world.submit(name, 10_000, gpus=1, num_nodes={"min": 1, "max": 3}, save=50.0)
        world.tick()
    world.run(until=55.0)
    assert world.running() == {"one", "two"}
    world.nodes(6, prefix="m", gpus=1)  # both have just saved
    world.run(until=500.0)
    assert len(world.sits("one")) + len(world.sits("two")) == 4


def test_it_does_not_grow_onto_a_node_that_goes_away():
    """Otherwise it would stop for it, not get it, start as it was, and stop again."""
    away = Maintenance(start=50.0, end=5000.0, nodes=("n0",))
    rules = Rules(
        estimates="declared", preemption=Preemption(grace=0.0, restart_cost=0.0),
        pools={"main": PoolRules(maintenance=(away,))},
    )  # fmt: skip
    world = World(rules, checks=[*CHECKS])
    world.nodes(2, gpus=1)
    world.submit("wide", 200, gpus=1, num_nodes={"min": 1, "max": 2}, save=15.0, max_duration=200)
    world.run(steps=200)
    assert not world.order("stopping")


@settings(max_examples=40, deadline=None)
@given(cases())
def test_between_the_fewest_and_all_whatever_happens(case: Case):
    """Every gang is made elastic; what runs is never more or less than it may be, and what changes size comes back."""
    case.jobs = [
        (at, seconds, user, {**spec, "num_nodes": {"min": 1, "max": 3}, "gpus": 1})
        for at, seconds, user, spec in case.jobs
    ]
    world = case.world()
    world.saves = {f"j{n}": 15.0 for n in range(1, len(case.jobs) + 1)}
    world.checks += [*CHECKS, _whoever_resizes_has_seats]
    world.run(until=3000.0, steps=3000)


def _whoever_resizes_has_seats(world: World, plan: Plan) -> None:
    claims = {claim.job: claim.seats for claim in plan.claims}
    for leave in plan.yields:
        if leave.reason.code == "resizing":
            seats = claims[leave.job]
            assert 1 <= len(seats) <= world.job(leave.job).spec.num_nodes
            assert len(seats) != len(world.sits(leave.job))
