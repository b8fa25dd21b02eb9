"""Who gives way: as few as will do, the cheapest, for somebody who starts for it; nobody hides, nobody goes round."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.core.job import Job, Seat
from muster.core.plan import Plan
from muster.core.resources import WHOLE
from muster.core.rules import Preemption, QueueRules, Rules
from muster.sched.policies import POLICIES
from scheduler_kit import SchedulerLoop
from streams import Case, board_agrees, cases, limits_hold, plan_is_sound

CHECKS = [plan_is_sound, limits_hold, board_agrees]
QUICK = Preemption(grace=10.0, min_run=0.0, restart_cost=0.0)


def made(preemption: Preemption = QUICK, order: str = "priority", **rule: Any) -> SchedulerLoop:
    return SchedulerLoop(Rules(preemption=preemption, defaults=QueueRules(order=order, **rule)), checks=list(CHECKS))


def test_the_one_who_asked_starts_on_the_seats_when_they_are_free_and_nobody_else_does():
    loop = made()
    loop.nodes(2, gpus=4)
    for name in ("x", "y"):
        loop.submit(name, 1000, gpus=4, priority=20)
    loop.run(until=5.0)
    loop.submit("high", 100, gpus=4, priority=90)
    loop.run(until=6.0)
    (victim,) = [job.id for job in loop.active() if job.stop is not None]
    seat = loop.sits(victim)
    for i in range(3):
        loop.submit(f"small{i}", 50, gpus=1, priority=95)
    loop.run(until=20.0)
    assert loop.times("starts", "high") == [15.0]
    assert loop.sits("high") == seat


def test_the_gang_that_loses_least_leaves():
    loop = made()
    loop.nodes(3, gpus=1)
    loop.submit("earlier", 10_000, gpus=1, priority=20)
    loop.submit("lately", 10_000, gpus=1, priority=20)
    loop.run(until=400.0)
    loop.checkpoint("earlier")
    loop.run(until=500.0)
    loop.checkpoint("lately")
    loop.submit("wide", 10_000, gpus=1, priority=30)
    loop.run(until=505.0)
    loop.checkpoint("wide")
    loop.run(until=510.0)
    loop.submit("high", 100, gpus=1, priority=90)
    loop.run(until=511.0)
    assert loop.order("stopping") == ["wide"]
    loop.submit("higher", 100, gpus=1, priority=95)
    loop.run(until=512.0)
    assert loop.order("stopping") == ["wide", "lately"]


def test_a_wide_gang_loses_more_in_the_same_time():
    loop = made()
    loop.nodes(3, gpus=1)
    loop.submit("two", 10_000, gpus=1, num_nodes=2, priority=20)
    loop.submit("one", 10_000, gpus=1, priority=20)
    loop.run(until=100.0)
    loop.checkpoint("two")
    loop.run(until=102.0)
    loop.checkpoint("one")
    loop.run(until=103.0)
    loop.submit("high", 100, gpus=1, priority=90)
    loop.tick()
    assert loop.order("stopping") == ["one"]


def test_saving_rarely_makes_nobody_safer():
    """Neither has saved for as long as counts: they lose alike, though the one has not for longer."""
    loop = made(Preemption(grace=10.0, min_run=0.0, restart_cost=0.0, save_every=100.0))
    loop.nodes(2, gpus=1)
    for name in ("rarely", "often"):
        loop.submit(name, 10_000, gpus=1, priority=20)
    loop.run(until=10.0)
    loop.checkpoint("rarely")
    loop.run(until=200.0)
    loop.checkpoint("often")
    loop.run(until=310.0)
    loop.submit("high", 100, gpus=1, priority=90)
    loop.tick()
    assert loop.order("stopping") == ["rarely"]


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.integers(1, 60), max_size=6), st.integers(0, 400), st.integers(1, 3), st.booleans(),
    st.sampled_from([30.0, 120.0, 1800.0]),
)  # fmt: skip
def test_hiding_checkpoints_never_makes_a_gang_safer(gaps, after, nodes, hider_first, save_every):
    """Of two gangs alike in all but that one of them says when it saves, the one that does not is asked first."""
    loop = made(Preemption(grace=10.0, min_run=0.0, restart_cost=0.0, save_every=save_every))
    loop.nodes(2 * nodes, gpus=1)
    for name in ("hides", "tells") if hider_first else ("tells", "hides"):
        loop.submit(name, 100_000, gpus=1, num_nodes=nodes, priority=20)
    loop.tick()
    for gap in gaps:
        loop.run(until=loop.now + gap)
        loop.checkpoint("tells")
    loop.run(until=loop.now + after)
    loop.submit("high", 10, gpus=1, num_nodes=nodes, priority=90)
    loop.tick()
    (victim,) = loop.order("stopping")
    alike = not gaps or not after  # then their numbers alone tell them apart
    assert victim == "hides" or (alike and not hider_first)


def test_as_few_leave_as_will_do():
    loop = made()
    loop.nodes(2, gpus=4)
    for i in range(4):
        loop.submit(f"half{i}", 1000, gpus=2, priority=20)
    loop.run(until=5.0)
    loop.submit("high", 100, gpus=2, priority=90)
    loop.tick()
    assert len(loop.order("stopping")) == 1
    loop.submit("higher", 100, gpus=4, priority=95)
    loop.tick()
    assert len(loop.order("stopping")) == 3


def test_nobody_leaves_in_vain():
    """Where even all who may be asked would not make enough room, nobody is asked."""
    loop = made()
    loop.nodes(3, gpus=4)
    loop.submit("low", 1000, gpus=4, priority=20)
    loop.submit("equal0", 1000, gpus=4, priority=90)
    loop.submit("equal1", 1000, gpus=4, priority=90)
    loop.run(until=5.0)
    loop.submit("high", 100, gpus=4, num_nodes=2, priority=90)
    loop.tick()
    assert not loop.order("stopping")


def test_within_its_rack_a_gang_asks_those_of_one_rack():
    loop = made()
    for i in range(4):
        loop.node(f"n{i}", gpus=1, rack=f"r{i % 2}")
        loop.submit(f"low{i}", 10_000, gpus=1, priority=20)
        loop.run(until=10.0 * i)
    loop.submit("high", 100, gpus=1, num_nodes=2, priority=90, topology="rack")
    loop.run(until=loop.now + 15.0)
    assert len(loop.order("stopping")) == 2
    assert {loop.state.nodes[name].labels["rack"] for name in loop.sits("high")} in ({"r0"}, {"r1"})


def test_parts_of_an_accelerator_leave_together_for_a_whole_one():
    loop = made()
    loop.node("n0", gpus=1)
    for i in range(2):
        loop.submit(f"half{i}", 1000, gpus=0.5, priority=20)
    loop.run(until=5.0)
    loop.submit("high", 100, gpus=1, priority=90)
    loop.run(until=20.0)
    assert loop.running() == {"high"}


def test_a_job_without_accelerators_takes_processors_back_on_any_node():
    loop = made()
    loop.node("n0", gpus=1, cpus=4)
    loop.submit("low", 1000, gpus=1, cpus=4, priority=20)
    loop.run(until=5.0)
    loop.submit("high", 100, cpus=2, priority=90)
    loop.run(until=20.0)
    assert "high" in loop.running()


def test_every_attempt_is_left_alone_for_its_least_run():
    loop = made(Preemption(grace=0.0, min_run=60.0, restart_cost=0.0))
    loop.node("n0", gpus=1)
    loop.submit("low", 1000, gpus=1, priority=20)
    loop.run(until=5.0)
    loop.submit("first", 50, gpus=1, priority=90)
    loop.run(until=115.0)
    assert loop.times("starts", "first") == [60.0]
    assert loop.times("starts", "low") == [0.0, 110.0]
    loop.submit("second", 50, gpus=1, priority=90)
    loop.run(until=300.0)
    assert loop.times("starts", "second") == [170.0]


def test_who_waited_too_long_goes_first_and_gives_way_to_no_rank():
    loop = made(overdue=100.0)
    loop.node("n0", gpus=1)
    loop.submit("long", 1000, gpus=1, priority=90)
    loop.tick()
    loop.submit("low", 500, gpus=1, priority=20)
    loop.run(until=150.0)
    assert loop.times("starts", "low") == [110.0]
    loop.submit("high", 100, gpus=1, priority=90)
    loop.run(until=400.0)
    assert loop.running() == {"low"}


def test_queues_never_push_each_other_round_in_circles():
    """One may ask by its rank, the other for its quota: each time one of them starts the other had a right to it."""
    rules = Rules(
        preemption=QUICK,
        queues={
            "a": QueueRules(order="predicted", quota={"main": 3}),
            "b": QueueRules(order="attained", quota={"main": 3}),
        },
    )
    loop = SchedulerLoop(rules, {"a": "p", "b": "p"}, checks=[*CHECKS])
    loop.node("n0", gpus=2)
    loop.node("n1", gpus=4)
    loop.submit("a2", 1000, queue="a", gpus=2)
    loop.submit("a1", 1000, queue="a", gpus=1)
    loop.submit("a2more", 1000, queue="a", gpus=2)
    loop.run(until=100.0)
    loop.submit("wide", 80, queue="b", gpus=2, num_nodes=2)
    loop.run(until=20_000.0)
    assert not loop.state.jobs
    assert max(loop.preemptions.values()) <= 5, loop.preemptions


def test_a_gang_that_is_done_within_its_grace_is_done():
    loop = made()
    loop.node("n0", gpus=1)
    loop.submit("low", 100, gpus=1, priority=20)
    loop.run(until=95.0)
    loop.submit("high", 100, gpus=1, priority=90)
    loop.run(until=110.0)
    assert loop.times("stopping", "low") == [95.0]
    assert loop.times("succeeded", "low") == [100.0]


def test_one_who_goes_first_as_overdue_is_not_asked_by_those_who_left_for_it():
    """Two become overdue; what the rules protect of them is taken up by the first, in the round in which the second
    asks."""
    loop = made(overdue=60.0)
    loop.nodes(2, gpus=4)
    loop.submit("wide", 500, gpus=4, num_nodes={"min": 1, "max": 2})
    loop.run(until=80.0)
    loop.submit("small", 10, gpus=1, priority=20)
    loop.run(until=95.0)
    loop.submit("first", 25, gpus=4, priority=20)
    loop.run(until=100.0)
    loop.submit("second", 60, gpus=4, priority=20)
    loop.checks.append(no_cascade)
    loop.run(until=2000.0)
    assert not loop.state.jobs


def test_what_is_protected_of_overdue_work_is_counted_in_the_pool_where_it_asks():
    """It might go to another pool as well, in which no overdue job runs and which has no room for it."""
    rules = Rules(
        preemption=Preemption(grace=0.0, min_run=0.0, restart_cost=0.0),
        defaults=QueueRules(order="priority", ageing=None, overdue=60.0),
    )
    loop = SchedulerLoop(rules, pools={"main": False, "other": False}, checks=[*CHECKS, no_cascade])
    loop.submit("old", 200, gpus=2)
    loop.submit("late", 200, gpus=2)
    loop.run(until=100.0)
    loop.node("n0", gpus=4)
    loop.submit("high", 300, gpus=4, priority=90)
    loop.run(until=3000.0)
    assert not loop.state.jobs


def test_a_queue_that_must_not_ask_or_not_be_asked():
    for rule in ({"preempts": False}, {"preemptible": False}):
        loop = made(**rule)
        loop.node("n0", gpus=1)
        loop.submit("low", 1000, gpus=1, priority=20)
        loop.run(until=5.0)
        loop.submit("high", 100, gpus=1, priority=90)
        loop.run(until=500.0)
        assert not loop.order("stopping"), rule


def test_a_claim_is_let_go_when_a_node_of_it_is_lost_and_others_may_have_the_rest():
    loop = made()
    loop.nodes(2, gpus=1)
    for i in range(2):
        loop.submit(f"low{i}", 1000, gpus=1, priority=20)
    loop.run(until=5.0)
    loop.submit("wide", 100, gpus=1, num_nodes=2, priority=90)
    loop.run(until=10.0)
    assert loop.job("wide").claim
    loop.lose("n1")
    loop.run(until=40.0)
    assert not loop.job("wide").claim
    assert len(loop.running()) == 1


# --- whatever the stream ----------------------------------------------------------------------------------------------
def promises_are_kept(loop: SchedulerLoop, plan: Plan) -> None:
    """Whoever has a claim, and is queued, starts as soon as its seats are free; no earlier, nowhere else."""
    starts = {start.job: start.seats for start in plan.starts}
    release_claim = {claim.job for claim in plan.claims if not claim.seats}
    for job in loop.state.jobs.values():
        if job.phase != "queued" or not job.claim or job.id in release_claim:
            continue
        if job.id in starts:
            assert starts[job.id] == job.claim
        else:
            assert not all(_is_free(loop, job, seat) for seat in job.claim), f"{job.id} waits for what is free"


def _is_free(loop: SchedulerLoop, job: Job, seat: Seat) -> bool:
    node = loop.state.nodes[seat.node]
    if job.ask.share < WHOLE or any(other.claim for other in loop.state.jobs.values() if other is not job):
        return False  # what is left beside others' claims is told apart by `nothing_shared_twice`
    whole = all(node.free_devices >> device & 1 for device in seat.devices)
    return whole and node.free.milli_cpus >= job.ask.milli_cpus and node.free.memory >= job.ask.memory


def no_cascade(loop: SchedulerLoop, plan: Plan) -> None:
    """Whoever had to leave for another does not ask that one to leave in the instant in which it starts.

    One that became urgent since it was asked to may: its priority is another now.
    """
    for leave in plan.yields:
        preemptor, attempt = leave.reason.data.get("for_job", ""), loop.job(leave.job).attempt
        if attempt is not None and attempt.planned_at == loop.now and not _became_urgent(loop, preemptor):
            assert loop.left_for.get(preemptor) != leave.job, f"{preemptor} left for {leave.job}, and asks it to leave"


def _became_urgent(loop: SchedulerLoop, preemptor: str) -> bool:
    left = loop.times("stopping", preemptor) if preemptor else []
    job = loop.job(preemptor) if left else None
    rule = loop.state.rules.queue(job.queue).escalation if job else None
    return job is not None and rule is not None and left[-1] < job.submitted_at + rule.after <= loop.now


@pytest.mark.parametrize("order", sorted(set(POLICIES) - {"turns"}))
def test_promises_are_kept_and_nobody_goes_round_in_circles(order: str):
    @settings(max_examples=25, deadline=None)
    @given(cases(order=order))
    def check(case: Case) -> None:
        loop = case.loop()
        loop.checks += [plan_is_sound, promises_are_kept, no_cascade]
        loop.run(until=4000.0)
        assert max(loop.preemptions.values(), default=0) <= 10 * len(case.jobs)

    check()
