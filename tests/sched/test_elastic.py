"""Elastic gangs: as many nodes as there are, fewer for others, more when nobody wants them."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings

from muster.core.plan import Plan
from muster.core.rules import Maintenance, PoolRules, Preemption, ProjectRules, QueueRules, Rules
from muster.sched.explain import Explainer
from scheduler_kit import SchedulerLoop
from streams import Case, board_agrees, cases, limits_hold, plan_is_sound

CHECKS = [plan_is_sound, limits_hold, board_agrees]
QUICK = Preemption(grace=10.0, min_run=0.0, restart_cost=2.0)
FREELY = {"min": 2, "max": 4}


def made(rules: Rules | None = None, nodes: int = 4, gpus: int = 1, **rule: Any) -> SchedulerLoop:
    loop = SchedulerLoop(
        rules or Rules(preemption=QUICK, defaults=QueueRules(**{"order": "priority", **rule})), checks=[*CHECKS]
    )
    loop.nodes(nodes, gpus=gpus)
    return loop


def test_it_takes_what_there_is_and_no_less_than_it_needs():
    for busy, expected in ((0, 4), (1, 3), (2, 2)):
        loop = made()
        for i in range(busy):
            loop.submit(f"x{i}", 1000, gpus=1)
        loop.tick()
        loop.submit("wide", 1000, gpus=1, num_nodes=FREELY)
        loop.tick()
        assert len(loop.sits("wide")) == expected
    loop = made()
    for i in range(3):
        loop.submit(f"x{i}", 1000, gpus=1)
    loop.tick()
    loop.submit("wide", 1000, gpus=1, num_nodes=FREELY)
    loop.run(until=500.0)
    assert "wide" not in loop.running()


def test_it_gives_up_the_nodes_that_one_who_goes_first_wants_and_goes_on_with_the_rest():
    loop = made()
    loop.submit("wide", 10_000, gpus=1, num_nodes=FREELY, priority=20)
    loop.run(until=100.0)
    loop.submit("high", 1000, gpus=1, num_nodes=2, priority=90)
    loop.run(until=111.0)
    assert loop.reasons("wide") == ["resizing"]
    assert loop.times("starts", "high") == loop.times("starts", "wide")[1:] == [110.0]
    assert len(loop.sits("wide")) == 2
    assert not set(loop.sits("wide")) & set(loop.sits("high"))


def test_it_leaves_whole_when_the_rest_would_be_too_few():
    loop = made()
    loop.submit("wide", 10_000, gpus=1, num_nodes=FREELY, priority=20)
    loop.run(until=100.0)
    loop.submit("high", 1000, gpus=1, num_nodes=3, priority=90)
    loop.run(until=111.0)
    assert loop.reasons("wide") == ["preempted"]
    assert loop.running() == {"high"}


def test_it_grows_right_after_it_saved_when_nobody_waits():
    loop = made()
    loop.submit("x", 100, gpus=1)
    loop.submit("wide", 10_000, gpus=1, num_nodes=FREELY, save=50.0)
    loop.run(until=99.0)
    assert len(loop.sits("wide")) == 3
    loop.run(until=200.0)
    assert len(loop.sits("wide")) == 4
    assert loop.reasons("wide") == ["resizing"]
    assert loop.times("starts", "wide") == [0.0, 110.0]


def test_it_goes_on_at_once_without_a_node_that_is_lost_and_grows_back():
    loop = made()
    loop.submit("wide", 10_000, gpus=1, num_nodes=FREELY, save=50.0)
    loop.run(until=60.0)
    lost = loop.sits("wide")[1]
    loop.lose(lost)
    loop.run(until=61.0)
    assert len(loop.sits("wide")) == 3
    assert loop.times("starts", "wide") == [0.0, 60.0]
    loop.run(until=150.0)
    loop.node(lost, gpus=1)
    loop.run(until=300.0)
    assert len(loop.sits("wide")) == 4
    assert loop.reasons("wide") == ["resizing"]


def test_it_does_not_grow_into_what_somebody_waits_for():
    loop = made()
    loop.submit("x", 100, gpus=1)
    loop.submit("wide", 10_000, gpus=1, num_nodes=FREELY, save=50.0)
    loop.tick()
    loop.submit("two", 1000, gpus=1, num_nodes=2)
    loop.run(until=400.0)
    assert len(loop.sits("wide")) == 3


def waits(loop: SchedulerLoop, name: str = "wide") -> str:
    """What the gang waits for to grow, as `muster why` says it; empty if it has all of its nodes."""
    found = Explainer.of(loop.state, loop.now).fewer_nodes(loop.job(name))
    assert all(one.data["waits_for"] in one.message for one in found)
    return str(found[0].data["waits_for"]) if found else ""


def test_it_says_what_it_waits_for_to_grow():
    loop = made()
    loop.submit("x", 100, gpus=1)
    loop.submit("wide", 10_000, gpus=1, num_nodes=FREELY)
    loop.run(until=99.0)
    assert waits(loop) == "a node of pool main with room for one more worker"
    loop.submit("two", 1000, gpus=1, num_nodes=2)
    loop.tick()
    assert waits(loop) == "the queued jobs that want nodes of pool main: they go first"
    loop.stop("two")
    loop.run(until=150.0)
    assert waits(loop) == "its next checkpoint"
    loop.checkpoint("wide")
    assert waits(loop) == "the next round of the scheduler"
    loop.run(until=200.0)
    assert (len(loop.sits("wide")), waits(loop)) == (4, "")


def test_it_says_that_a_restart_is_not_worth_it_yet():
    loop = made(Rules(preemption=QUICK.model_copy(update={"restart_cost": 100.0})))
    loop.submit("x", 10, gpus=1)
    loop.submit("wide", 10_000, gpus=1, num_nodes=FREELY, save=50.0)
    loop.run(until=900.0)
    assert waits(loop) == "1m40s more of this attempt, so that a restart is worth it"


def test_it_does_not_grow_before_a_restart_is_worth_it():
    loop = made(Rules(preemption=QUICK.model_copy(update={"restart_cost": 100.0})))
    loop.submit("x", 10, gpus=1)
    loop.submit("wide", 10_000, gpus=1, num_nodes=FREELY, save=50.0)
    loop.run(until=950.0)
    assert len(loop.sits("wide")) == 3
    loop.run(until=1100.0)
    assert len(loop.sits("wide")) == 4


def test_it_grows_past_the_node_that_it_sits_on_already():
    """That node has the least to spare and would be taken first."""
    loop = made(nodes=2, gpus=2)
    loop.submit("x", 100, gpus=2)
    loop.submit("wide", 10_000, gpus=1, num_nodes={"min": 1, "max": 2}, save=50.0)
    loop.run(until=200.0)
    assert len(loop.sits("wide")) == 2


def test_it_does_not_grow_past_quota_or_limits():
    limited = [
        Rules(preemption=QUICK, queues={"default": QueueRules(quota={"main": 3}, borrow={})}),
        Rules(preemption=QUICK, defaults=QueueRules(max_accelerators_per_user=3)),
        Rules(preemption=QUICK, projects={"default": ProjectRules(max_accelerators=3)}),
        Rules(preemption=QUICK, queues={"other": QueueRules(quota={"main": 3}, lend=False)}),
    ]
    for rules in limited:
        loop = SchedulerLoop(rules, {"default": "default", "other": "default"}, checks=[*CHECKS])
        loop.nodes(2, gpus=1)
        loop.submit("wide", 10_000, gpus=1, num_nodes=FREELY, save=50.0)
        loop.run(until=10.0)
        loop.nodes(6, gpus=1, prefix="m")
        loop.run(until=400.0)
        full = "" if "other" in rules.queues else "room in the quotas and limits of queue default"
        assert (len(loop.sits("wide")), waits(loop)) == (3 if full else 4, full)


def test_two_grow_into_what_is_free_without_taking_it_twice():
    loop = made(nodes=2)
    for name in ("one", "two"):
        loop.submit(name, 10_000, gpus=1, num_nodes={"min": 1, "max": 3}, save=50.0)
    loop.tick()
    loop.submit("x", 1, gpus=1)
    loop.nodes(3, prefix="m", gpus=1)
    loop.run(until=500.0)
    sits = [*loop.sits("one"), *loop.sits("two")]
    assert len(sits) == len(set(sits)) == 5


def test_two_that_grow_at_once_stay_within_the_limit_together():
    """A gang that stops to grow no longer counts, but what is kept for it does."""
    loop = made(Rules(preemption=QUICK, queues={"default": QueueRules(quota={"main": 4}, borrow={})}), nodes=0)
    for name in ("one", "two"):
        loop.nodes(1, prefix=name, gpus=1)
        loop.submit(name, 10_000, gpus=1, num_nodes={"min": 1, "max": 3}, save=50.0)
        loop.tick()
    loop.run(until=55.0)
    assert loop.running() == {"one", "two"}
    loop.nodes(6, prefix="m", gpus=1)  # both have just saved
    loop.run(until=500.0)
    assert len(loop.sits("one")) + len(loop.sits("two")) == 4


def test_it_does_not_grow_onto_a_node_that_goes_away():
    """Otherwise it would stop for it, not get it, start as it was, and stop again."""
    away = Maintenance(start=50.0, end=5000.0, nodes=("n0",))
    rules = Rules(
        estimates="declared", preemption=Preemption(grace=0.0, restart_cost=0.0),
        pools={"main": PoolRules(maintenance=(away,))},
    )  # fmt: skip
    loop = SchedulerLoop(rules, checks=[*CHECKS])
    loop.nodes(2, gpus=1)
    loop.submit("wide", 200, gpus=1, num_nodes={"min": 1, "max": 2}, save=15.0, max_duration=200)
    loop.run(steps=200)
    assert not loop.order("stopping")


@settings(max_examples=40, deadline=None)
@given(cases())
def test_between_the_fewest_and_all_whatever_happens(case: Case):
    """Every gang is made elastic; what runs is never more or less than it may be, and what changes size comes back."""
    case.jobs = [
        (at, seconds, user, {**spec, "num_nodes": {"min": 1, "max": 3}, "gpus": 1})
        for at, seconds, user, spec in case.jobs
    ]
    loop = case.loop()
    loop.saves = {f"j{n}": 15.0 for n in range(1, len(case.jobs) + 1)}
    loop.checks += [*CHECKS, _whoever_resizes_has_seats]
    loop.run(until=3000.0, steps=3000)


def _whoever_resizes_has_seats(loop: SchedulerLoop, plan: Plan) -> None:
    claims = {claim.job: claim.seats for claim in plan.claims}
    for leave in plan.yields:
        if leave.reason.code == "resizing":
            seats = claims[leave.job]
            assert 1 <= len(seats) <= loop.job(leave.job).spec.num_nodes
            assert len(seats) != len(loop.sits(leave.job))
