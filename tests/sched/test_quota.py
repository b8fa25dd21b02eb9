"""Quotas: what is a queue's own, what it borrows, what it lends, and how soon its own comes back."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.core.plan import Plan
from muster.core.rules import Preemption, ProjectRules, QueueRules, Rules
from scheduler_kit import SchedulerLoop
from streams import board_agrees, limits_hold, plan_is_sound

CHECKS = [plan_is_sound, limits_hold, board_agrees]
QUICK = Preemption(grace=10.0, min_run=0.0, restart_cost=0.0)
NAMES = ("a", "b", "c")


def made(gpus: int = 8, nodes: int = 1, preemption: Preemption = QUICK, **queues: Any) -> SchedulerLoop:
    rules = Rules(
        preemption=preemption,
        queues={name: QueueRules(**{"order": "fifo", **rule}) for name, rule in queues.items()},
    )
    loop = SchedulerLoop(rules, dict.fromkeys(queues, "default"), checks=list(CHECKS))
    loop.nodes(nodes, gpus=gpus)
    return loop


def some(loop: SchedulerLoop, queue: str, count: int, seconds: float = 10_000, **spec: Any) -> list[str]:
    taken = len(loop.left)
    return [loop.submit(f"{queue}{taken + i}", seconds, queue=queue, **{"gpus": 1, **spec}) for i in range(count)]


def used(loop: SchedulerLoop) -> Counter[str]:
    """Accelerators by queue, of those who stay."""
    found: Counter[str] = Counter()
    for job in loop.active():
        if job.stop is None and job.attempt is not None:
            found[job.queue] += sum(len(worker.seat.devices) for worker in job.attempt.workers)
    return found


def test_what_is_idle_is_borrowed_and_comes_back_after_the_grace():
    loop = made(a={"quota": {"main": 6}}, b={"quota": {"main": 2}})
    some(loop, "b", 8)
    loop.run(until=100.0)
    assert used(loop) == {"b": 8}
    some(loop, "a", 6)
    loop.run(until=110.0)
    assert used(loop) == {"a": 6, "b": 2}


def test_nobody_reclaims_beyond_his_quota():
    loop = made(a={"quota": {"main": 4}}, b={})
    some(loop, "b", 8)
    loop.run(until=100.0)
    some(loop, "a", 8)
    loop.run(until=200.0)
    assert used(loop) == {"a": 4, "b": 4}


def test_borrowing_stops_at_its_limit():
    loop = made(a={"quota": {"main": 2}, "borrow": {"main": 3}}, b={"quota": {"main": 1}, "borrow": {}})
    some(loop, "a", 8)
    some(loop, "b", 8)
    loop.tick()
    assert used(loop) == {"a": 5, "b": 1}


def test_an_elastic_gang_borrows_no_more_than_its_queue_may():
    loop = made(gpus=1, nodes=8, a={"quota": {"main": 2}, "borrow": {"main": 1}})
    loop.submit("wide", 1000, queue="a", gpus=1, num_nodes={"min": 2, "max": 8})
    loop.tick()
    assert used(loop) == {"a": 3}


def test_an_elastic_gang_stays_within_the_limits_on_its_user():
    loop = made(gpus=1, nodes=8, a={"max_accelerators_per_user": 4})
    loop.submit("wide", 1000, queue="a", gpus=1, num_nodes={"min": 2, "max": 8})
    loop.tick()
    assert used(loop) == {"a": 4}


def test_an_elastic_gang_leaves_alone_what_is_not_lent():
    loop = made(gpus=1, nodes=8, a={}, b={"quota": {"main": 5}, "lend": False})
    loop.submit("wide", 1000, queue="a", gpus=1, num_nodes={"min": 2, "max": 8})
    loop.tick()
    assert used(loop) == {"a": 3}


def test_what_is_not_lent_is_not_taken_and_its_owner_starts_at_once():
    loop = made(a={"quota": {"main": 5}, "lend": False}, b={})
    some(loop, "b", 8)
    loop.tick()
    assert used(loop) == {"b": 3}
    some(loop, "a", 5)
    loop.tick()
    assert used(loop) == {"a": 5, "b": 3}


def test_a_better_job_takes_the_place_of_one_of_its_queue_beside_what_another_keeps():
    """What is kept back by its owner is neither needed nor touched for that."""
    rules = {"a": {"quota": {"main": 4}, "lend": False}, "b": {"order": "priority"}}
    loop = made(**rules)
    some(loop, "b", 4, priority=20)
    loop.run(until=10.0)
    assert used(loop) == {"b": 4}
    loop.submit("high", 100, queue="b", gpus=4, priority=90)
    loop.run(until=30.0)
    assert "high" in loop.running()


def test_a_queue_within_another_uses_what_is_its_parents():
    loop = made(a={"quota": {"main": 6}}, b={"parent": "a"}, c={"parent": "a", "quota": {"main": 2}}, d={})
    some(loop, "d", 8)
    loop.run(until=100.0)
    some(loop, "b", 8)
    loop.run(until=200.0)
    assert used(loop) == {"b": 6, "d": 2}
    some(loop, "c", 4)
    loop.run(until=300.0)
    assert used(loop)["c"] >= 2
    assert used(loop)["b"] + used(loop)["c"] >= 6


def test_no_more_is_taken_back_than_was_borrowed():
    """One queue borrows one accelerator and another three: each gives back what it borrowed, whoever is cheapest."""
    loop = made(a={"quota": {"main": 4}}, b={"quota": {"main": 4}}, c={})
    some(loop, "b", 4)
    some(loop, "c", 3)
    loop.run(until=300.0)
    some(loop, "b", 1)
    loop.run(until=400.0)
    assert used(loop) == {"b": 5, "c": 3}
    loop.submit("own", 1000, queue="a", gpus=4)
    loop.run(until=500.0)
    assert used(loop) == {"a": 4, "b": 4}
    assert sum(loop.preemptions.values()) == 4


def test_an_accelerator_in_parts_is_reclaimed_whole():
    loop = made(gpus=1, a={"quota": {"main": 1}}, b={})
    some(loop, "b", 2, gpus=0.5)
    loop.run(until=100.0)
    assert len(loop.running()) == 2
    some(loop, "a", 1)
    loop.run(until=200.0)
    assert loop.running() == {"a2"}


def test_quotas_of_the_defaults_hold_for_queues_that_are_not_named():
    rules = Rules(preemption=QUICK, defaults=QueueRules(order="fifo", quota={"main": 4}))
    loop = SchedulerLoop(rules, {"a": "default", "b": "default"}, checks=list(CHECKS))
    loop.node("n0", gpus=8)
    some(loop, "b", 8)
    loop.run(until=100.0)
    some(loop, "a", 4)
    loop.run(until=200.0)
    assert used(loop) == {"a": 4, "b": 4}


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ({"max_running": 3}, {"ada": 3}),
        ({"max_per_user": 2}, {"ada": 2, "bob": 2}),
        ({"max_accelerators_per_user": 1}, {"ada": 1, "bob": 1}),
    ],
)
def test_limits_of_a_queue(rule: dict[str, int], expected: dict[str, int]):
    loop = made(a=rule)
    for user in ("ada", "bob"):
        for i in range(4):
            loop.submit(f"{user}{i}", 100, user, queue="a", gpus=1)
    loop.tick()
    assert Counter(job.user for job in loop.active()) == expected
    loop.run()
    assert not loop.state.jobs


def test_limits_of_a_project_hold_over_all_its_queues():
    rules = Rules(projects={"p": ProjectRules(max_running=3), "q": ProjectRules(max_accelerators=2)})
    loop = SchedulerLoop(rules, {"a": "p", "b": "p", "c": "q"}, checks=list(CHECKS))
    loop.node("n0", gpus=8)
    for queue in NAMES:
        some(loop, queue, 4, seconds=100)
    loop.tick()
    assert Counter(job.project for job in loop.active()) == {"p": 3, "q": 2}
    loop.run()
    assert not loop.state.jobs


# --- whatever the stream of jobs --------------------------------------------------------------------------------------
quotas = st.tuples(*[st.integers(0, 3)] * 3)
arrivals = st.lists(
    st.tuples(st.integers(0, 40), st.sampled_from(NAMES), st.integers(1, 60), st.sampled_from([1, 1, 2])),
    min_size=1, max_size=24,
)  # fmt: skip


def stream(loop: SchedulerLoop, jobs: list[tuple[int, str, int, int]]) -> None:
    for number, (at, queue, seconds, gpus) in enumerate(jobs):
        loop.after(5.0 * at, lambda n=number, q=queue, s=seconds, g=gpus: loop.submit(f"j{n}", s, queue=q, gpus=g))


@settings(max_examples=60, deadline=None)
@given(quotas, st.sets(st.sampled_from(NAMES)), arrivals, st.sampled_from(["fifo", "predicted", "priority"]))
def test_one_who_does_not_lend_never_waits_for_what_is_his(owned, keep, jobs, order):
    """Jobs of one accelerator: nothing is lost to gaps, so what is kept is there to be had at once."""
    rules = {
        name: {"quota": {"main": quota}, "lend": name not in keep, "order": order}
        for name, quota in zip(NAMES, owned, strict=True)
    }
    loop = made(gpus=9, **rules)
    loop.checks.append(_keepers_do_not_wait)
    stream(loop, [(at, queue, seconds, 1) for at, queue, seconds, _ in jobs])
    loop.run(until=2000.0)
    assert not loop.state.jobs


def _keepers_do_not_wait(loop: SchedulerLoop, plan: Plan) -> None:
    if plan.starts or plan.yields or plan.claims:
        return  # not the last word of this instant
    held = used(loop)
    for job in loop.state.jobs.values():
        rule = loop.rules.queues[job.queue]
        if job.phase == "queued" and not rule.lend:
            assert held[job.queue] + 1 > rule.quota["main"], f"{job.id} waits for what is its own"


@settings(max_examples=60, deadline=None)
@given(quotas, arrivals, st.sampled_from(["fifo", "predicted"]), st.sampled_from([0.0, 30.0]))
def test_what_is_ones_own_comes_back_within_the_grace_and_the_least_run(owned, jobs, order, min_run):
    """Whoever is within his quota, on a pool that holds all quotas, waits no longer than others need to leave."""
    loop = made(
        gpus=9, preemption=Preemption(grace=10.0, min_run=min_run, restart_cost=0.0),
        **{name: {"quota": {"main": q}, "order": order} for name, q in zip(NAMES, owned, strict=True)},
    )  # fmt: skip
    since: dict[str, float] = {}

    def waits(loop: SchedulerLoop, plan: Plan) -> None:
        held = used(loop)
        entitled = set()
        for queue in NAMES:
            room = loop.rules.queues[queue].quota["main"] - held[queue]
            # The first of his queue alone: whether the next is within the quota depends on who else gets it.
            line = [j for j in loop.state.jobs.values() if j.queue == queue and j.phase == "queued"]
            if line and all(job.ask.accelerators <= room for job in line):
                entitled |= {job.id for job in line if job.ask.accelerators <= room}
        for name in list(since):
            if name not in entitled:
                del since[name]
        for name in entitled:
            since.setdefault(name, loop.now)
            assert loop.now <= since[name] + 10.0 + min_run, f"{name} has waited since {since[name]} at {loop.now}"

    loop.checks.append(waits)
    stream(loop, jobs)
    loop.run(until=3000.0)
