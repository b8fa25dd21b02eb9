"""Fair share in virtual time: by weight, along the tree, by the dominant resource; and turns that go round."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.core.rules import Escalation, Preemption, ProjectRules, QueueRules, Rules
from muster.core.spec import ask as worker_asks
from muster.sched.queue_cursor import QueueCursor
from muster.sched.queued_jobs import Queued
from scheduler_kit import SchedulerLoop
from streams import Case, board_agrees, cases, limits_hold, plan_is_sound

CHECKS = [plan_is_sound, limits_hold, board_agrees]
QUIET = Preemption(enabled=False)
LONG = 3e8  # seconds: a half-life in which nothing fades


def made(where: dict[str, str], projects: dict[str, ProjectRules] | None = None, **rules: Any) -> SchedulerLoop:
    found = Rules(**{"between": "fair", "preemption": QUIET, "half_life": LONG, "projects": projects or {}, **rules})
    return SchedulerLoop(found, where, checks=[plan_is_sound])


def endless(
    loop: SchedulerLoop, queue: str, seconds: float = 60.0, user: str = "ada", ahead: int = 10, **spec: Any
) -> None:
    """Work that never ends: whenever a job of it is done, the next is there."""
    spec = {"gpus": 1, **spec}

    def more() -> None:
        waiting = sum(j.queue == queue and j.user == user and j.phase == "queued" for j in loop.state.jobs.values())
        for _ in range(ahead - waiting):
            loop.submit(f"{queue}-{user}-{len(loop.left)}", seconds, user, queue=queue, **spec)
        loop.after(seconds / 2, more)

    more()


def served(loop: SchedulerLoop, by: str = "queue", what: str = "accelerators", since: float = 0.0) -> dict[str, float]:
    """Accelerator-seconds, or CPU-seconds, that jobs held after `since`, by the first or second word of their names."""
    found: Counter[str] = Counter()
    begun: dict[str, float] = {}
    ends = [(loop.now, "now", name, "") for name in loop.running()]
    for at, kind, name, _ in [*loop.told, *ends]:
        if kind == "starts":
            begun[name] = at
        elif name in begun:
            ask = worker_asks(loop.specs[name])
            held = max(at - max(begun.pop(name), since), 0.0) * loop.specs[name].num_nodes
            whose = name.split("-")[0 if by == "queue" else 1]
            found[whose] += held * (ask.weight if what == "accelerators" else ask.milli_cpus / 1000)
    return found


def shares(found: dict[str, float]) -> dict[str, float]:
    return {name: amount / sum(found.values()) for name, amount in found.items()}


@pytest.mark.parametrize("backfill", ["greedy", "none", "easy"])
def test_projects_get_by_weight(backfill: str):
    loop = made(
        {"a": "p", "b": "q"}, {"p": ProjectRules(weight=2.0)},
        defaults=QueueRules(order="fifo", backfill=backfill),
    )  # fmt: skip
    loop.nodes(2, gpus=6)
    endless(loop, "a")
    endless(loop, "b")
    loop.run(until=6000.0)
    assert shares(served(loop))["a"] == pytest.approx(2 / 3, abs=0.03)


def test_who_had_nothing_for_a_while_does_not_get_all_for_ever():
    """Past use fades with the half-life: one who comes late catches up, and then it is half and half again."""
    loop = made({"a": "p", "b": "q"}, half_life=1000.0)
    loop.nodes(1, gpus=8)
    endless(loop, "a")
    loop.run(until=5000.0)
    endless(loop, "b")
    loop.run(until=15_000.0)
    loop.run(until=25_000.0)
    assert shares(served(loop, since=15_000.0))["a"] == pytest.approx(0.5, abs=0.04)


def test_shares_add_up_along_the_tree():
    """Two projects alike; in one of them a queue with two in it, of weights three and one, beside another queue."""
    queues = {"root": "p", "x": "p", "y": "p", "z": "p", "w": "q"}
    loop = made(
        queues,
        queues={
            "root": QueueRules(order="fifo"),
            "x": QueueRules(parent="root", weight=3.0, order="fifo"),
            "y": QueueRules(parent="root", weight=1.0, order="fifo"),
            "z": QueueRules(parent=None, order="fifo"),
        },
    )  # fmt: skip
    loop.nodes(2, gpus=8)
    for queue in ("x", "y", "z", "w"):
        endless(loop, queue, ahead=20)
    loop.run(until=6000.0)
    found = shares(served(loop))
    assert found == pytest.approx({"w": 1 / 2, "z": 1 / 4, "x": 3 / 16, "y": 1 / 16}, abs=0.03)


def test_users_of_a_queue_get_by_weight():
    loop = made({"a": "p"}, queues={"a": QueueRules(order="fifo", users={"ada": 3.0})})
    loop.nodes(1, gpus=8)
    for user in ("ada", "bob", "eve"):
        endless(loop, "a", user=user)
    loop.run(until=15_000.0)
    assert shares(served(loop, "user")) == pytest.approx({"ada": 0.6, "bob": 0.2, "eve": 0.2}, abs=0.03)


def test_the_dominant_resource_counts():
    """One wants accelerators, the other processors, each of which there are as many as they can use: the shares of what
    each uses most of are the same, as dominant resource fairness has it."""
    loop = made({"a": "p", "b": "q"}, defaults=QueueRules(order="fifo"))
    loop.node("n0", gpus=18, cpus=90)
    endless(loop, "a", gpus=1, cpus=9, ahead=30)  # of all: 1/18 accelerators, 1/10 processors
    endless(loop, "b", gpus=3, cpus=1, ahead=30)  # 1/6 accelerators, 1/90 processors
    loop.run(until=4000.0)
    cpus = served(loop, what="cpus")["a"] / 90
    gpus = served(loop)["b"] / 18
    assert cpus == pytest.approx(gpus, rel=0.1)


def test_gangs_of_another_size_change_nothing():
    loop = made({"a": "p", "b": "q"}, {"p": ProjectRules(weight=2.0)})
    loop.nodes(4, gpus=4)
    endless(loop, "a", gpus=4)
    endless(loop, "b", gpus=1, seconds=90.0, ahead=30)
    loop.run(until=8000.0)
    assert shares(served(loop))["a"] == pytest.approx(2 / 3, abs=0.05)


# --- turns ------------------------------------------------------------------------------------------------------------
def turning(slots: int, slice: float = 100.0, **rules: Any) -> SchedulerLoop:
    found = {
        "preemption": Preemption(grace=5.0, min_run=0.0, restart_cost=0.0),
        "queues": {"default": QueueRules(slice=slice)},
    }
    loop = SchedulerLoop(Rules(**{**found, **rules}), checks=[*CHECKS])
    loop.node("n0", gpus=slots)
    return loop


def test_turns_go_round_and_each_gets_its_whole_slice():
    loop = turning(1)
    for name in ("x", "y", "z"):
        loop.submit(name, 250, gpus=1, kind="session")
    loop.run()
    begun = loop.order("starts")
    assert begun[:6] == ["x", "y", "z", "x", "y", "z"]
    for name in ("x", "y", "z"):
        starts, stops = loop.times("starts", name), loop.times("stopping", name)
        assert all(stop - start >= 100.0 for start, stop in zip(starts, stops, strict=False))


def test_nobody_is_moved_while_nobody_waits():
    loop = turning(2)
    for name in ("x", "y"):
        loop.submit(name, 1000, gpus=1, kind="session")
    loop.run()
    assert not loop.order("stopping")


def test_turns_also_in_a_queue_that_follows_the_defaults():
    loop = turning(1, queues={}, defaults=QueueRules(slice=100.0))
    for name in ("x", "y"):
        loop.submit(name, 250, gpus=1, kind="session")
    loop.run()
    assert loop.order("starts")[:4] == ["x", "y", "x", "y"]


def test_lent_quota_is_given_back_before_the_turn_is_over():
    rules = Rules(
        preemption=Preemption(grace=5.0, min_run=10.0, restart_cost=0.0),
        queues={"turns": QueueRules(slice=10_000.0), "own": QueueRules(quota={"main": 1})},
    )
    loop = SchedulerLoop(rules, {"turns": "p", "own": "p"}, checks=[*CHECKS])
    loop.node("n0", gpus=1)
    loop.submit("session", 50_000, queue="turns", gpus=1)
    loop.run(until=1.0)
    loop.submit("mine", 100, queue="own", gpus=1)
    loop.run(until=30.0)
    assert loop.running() == {"mine"}


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 50), st.integers(1, 60)), min_size=1, max_size=8), st.integers(1, 3))
def test_in_turns_nobody_waits_longer_than_all_others_take_theirs(jobs: list[tuple[int, int]], slots: int):
    loop = turning(slots)
    for number, (at, seconds) in enumerate(jobs):
        loop.after(10.0 * at, lambda n=number, s=10.0 * seconds: loop.submit(f"j{n}", s, gpus=1, kind="session"))
    loop.run()
    assert not loop.state.jobs
    turn = 100.0 + 5.0
    queued: dict[str, float] = {f"j{n}": 10.0 * at for n, (at, _) in enumerate(jobs)}
    for at, what, job, _ in loop.told:
        if what == "queued":
            queued[job] = at
        elif what == "starts":
            assert at - queued[job] <= len(jobs) * turn


# --- priorities -------------------------------------------------------------------------------------------------------
def first_of(rule: dict[str, Any], *jobs: tuple[float, dict[str, Any]]) -> list[str]:
    """In which order jobs start that come at these times to one node that is busy for 1000 s."""
    loop = SchedulerLoop(
        Rules(preemption=QUIET, defaults=QueueRules(**{"overdue": None, **rule})), checks=[*CHECKS]
    )  # fmt: skip
    loop.node("n0", gpus=1)
    loop.submit("busy", 1000, gpus=1)
    for at, spec in jobs:
        loop.after(at, lambda spec=spec: loop.submit(spec.pop("as_"), 10, gpus=1, **spec))
    loop.run()
    return loop.order("starts")[1:]


def test_waiting_makes_up_for_priority_and_never_without_ageing():
    jobs = (1.0, {"as_": "old", "priority": 50}), (500.0, {"as_": "new", "priority": 75})
    assert first_of({"order": "priority", "ageing": 400.0}, *[(t, dict(s)) for t, s in jobs]) == ["old", "new"]
    assert first_of({"order": "priority", "ageing": 600.0}, *[(t, dict(s)) for t, s in jobs]) == ["new", "old"]
    assert first_of({"order": "priority", "ageing": None}, *[(t, dict(s)) for t, s in jobs]) == ["new", "old"]


@pytest.mark.parametrize("order", ["priority", "predicted", "attained", "shortest"])
def test_one_who_has_waited_is_treated_as_of_the_priority_that_it_is_raised_to(order: str):
    jobs = (1.0, {"as_": "low", "priority": 20}), (500.0, {"as_": "high", "priority": 75})
    raised = {"order": order, "ageing": None, "escalation": Escalation(after=300.0, to=90)}
    assert first_of(raised, *[(t, dict(s)) for t, s in jobs]) == ["low", "high"]
    assert first_of({**raised, "escalation": None}, *[(t, dict(s)) for t, s in jobs]) == ["high", "low"]


@pytest.mark.parametrize("backfill", ["none", "easy"])
@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_scores_and_the_order_of_a_queue_that_are_kept_are_those_of_a_new_look(backfill: str, data: st.DataObject):
    case: Case = data.draw(cases(backfill=backfill))
    case.rules = case.rules.model_copy(update={"between": "fair"})
    loop = case.loop()
    taken = QueueCursor.step

    def step(cursor: QueueCursor) -> Queued | None:
        """The stream that a queue is served from is first by the whole key too, with the share of its project."""
        queued, filling = taken(cursor), cursor._filling
        shares_kept = filling.board.shares
        for name in loop.state.queues:
            kept = shares_kept.queue(name)
            shares_kept._forget_scores()
            assert shares_kept.queue(name) == kept
        if queued is not None:
            first = filling.fair_key(queued.stream)[:-1]
            heads = [stream for _, _, place, stream in cursor._heap if place == 0]
            untouched = queued.stream.entries[0] == queued.entry
            assert not untouched or all(first <= filling.fair_key(stream)[: len(first)] for stream in heads)
        return queued

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(QueueCursor, "step", step)
        loop.checks += [plan_is_sound, board_agrees]
        loop.run(until=500.0)
