"""Whatever the cluster, the rules and the day: never too much, never half a gang, always the same, and all get done."""

from __future__ import annotations

import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st

from muster.core.plan import Plan
from muster.core.rules import QueueRules, Rules
from muster.sched.schedule import schedule
from scheduler_kit import SchedulerLoop, fold
from streams import (
    BACKFILLS,
    ORDERS,
    Case,
    board_agrees,
    case_of,
    cases,
    decisions,
    limits_hold,
    needs_hold,
    plan_is_sound,
)

LONG = 20_000.0  # seconds: ten times what all the work of a case takes one after the other


@settings(max_examples=60, deadline=None)
@given(cases())
def test_never_too_much_never_half_a_gang_and_the_same_from_nothing(case: Case):
    """The key test of what is kept between rounds: at every step of every history a new board says the same."""
    note(str(case))
    loop = case.loop()
    loop.checks += [plan_is_sound, limits_hold, board_agrees]
    loop.run(until=2000.0)


@settings(max_examples=60, deadline=None)
@given(cases(needs=True))
def test_nobody_starts_before_what_it_needs(case: Case):
    note(str(case))
    loop = case.loop()
    loop.checks += [plan_is_sound, needs_hold, board_agrees]
    loop.run(until=1000.0)
    again = fold(loop.log)
    assert (again.dependents, again.settled) == (loop.state.dependents, loop.state.settled)


@settings(max_examples=30, deadline=None)
@given(cases(needs=True, plain=True))
def test_nobody_waits_for_ever_for_another(case: Case):
    """Jobs that need one that was stopped or failed end too, and so do those behind them."""
    note(str(case))
    loop = case.loop()
    loop.run(until=LONG)
    for name, gpus, cpus, pool, labels in case.nodes:
        loop.node(name, gpus, cpus, pool, **labels)
        loop.health(name, "healthy")
        loop.away(pool, "")
    loop.run(until=loop.now + LONG)
    assert not loop.state.jobs, f"at {loop.now}: {loop.phases()}"
    assert not loop.state.dependents
    assert not loop.state.settled


@pytest.mark.parametrize(("seed", "jobs", "order"), [(7157854, 15, "predicted"), (4166048750, 14, "priority")])
def test_histories_that_once_went_wrong(seed: int, jobs: int, order: str):
    """More overdue streams than are looked at; an elastic gang beside a reservation and at its queue's limit."""
    loop = case_of(seed, jobs, order).loop()
    loop.checks += [plan_is_sound, limits_hold, board_agrees]
    loop.run(until=1500.0)


@settings(max_examples=40, deadline=None)
@given(cases(), st.sampled_from([5.0, 20.0, 60.0]))
def test_rounds_at_fixed_times(case: Case, every: float):
    note(str(case))
    case.rules = case.rules.model_copy(update={"round": every})
    loop = case.loop()
    loop.checks += [plan_is_sound, limits_hold, board_agrees, lambda loop, plan: _on_the_beat(loop, plan, every)]
    loop.run(until=1000.0)


def _on_the_beat(loop: SchedulerLoop, plan: Plan, every: float) -> None:
    assert not (plan.starts or plan.yields) or loop.now % every == 0


@settings(max_examples=40, deadline=None)
@given(cases(), st.integers(1, 20))
def test_the_log_alone_gives_the_same_plan(case: Case, steps: int):
    """Events in, state out, plan out: nothing else matters, not even how the state was reached."""
    note(str(case))
    loop = case.loop()
    loop.tick()
    for _ in range(steps):
        if not loop.step():
            break
    again = fold(loop.log)
    assert decisions(schedule(again, loop.now)) == decisions(schedule(loop.state, loop.now))


@pytest.mark.parametrize("backfill", BACKFILLS)
@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_everyone_who_can_run_does_in_the_end(backfill: str, data: st.DataObject):
    """A finite stream of gangs that fit, every order, preemption too: all are done, after not too many stops."""
    case: Case = data.draw(cases(backfill=backfill, troubled=False, plain=True))
    note(str(case))
    loop = case.loop()
    loop.run(until=LONG)
    assert not loop.state.jobs, f"at {loop.now}: {loop.phases()}"
    assert max(loop.preemptions.values()) <= 4 * len(case.jobs), loop.preemptions


@settings(max_examples=40, deadline=None)
@given(cases())
def test_everyone_is_done_when_the_trouble_is_over(case: Case):
    """Nodes that were lost or drained come back, all pools are open to all, and nothing is left waiting."""
    note(str(case))
    calm = case.rules.model_copy(update={"queues": {}, "pools": {}, "projects": {}, "defaults": QueueRules()})
    loop = case.loop()
    loop.run(until=1000.0)
    for name, gpus, cpus, pool, labels in case.nodes:
        loop.node(name, gpus, cpus, pool, **labels)
        loop.health(name, "healthy")
        loop.away(pool, "")
    loop.set_rules(calm)
    for job in list(loop.state.jobs.values()):
        if job.spec.topology.require or job.spec.pool or job.spec.num_nodes > 1 or not job.ask.accelerators:
            loop.stop(job.id)  # what no set of nodes of its pool may hold
    loop.checks += [plan_is_sound]
    loop.run(until=loop.now + LONG)
    assert not loop.state.jobs, f"at {loop.now}: {loop.phases()}"


@pytest.mark.parametrize("order", ORDERS)
def test_what_waits_is_not_looked_at_one_by_one(order: str):
    """A round in which nothing changed costs nothing for the hundreds that wait."""
    loop = SchedulerLoop(Rules(defaults=QueueRules(order=order)))
    loop.node("n0", gpus=1, cpus=8)
    for i in range(300):
        loop.submit(f"j{i}", 10_000, gpus=1)
    loop.tick()
    looked: list[str] = []

    class Watched(dict):
        def __getitem__(self, key):
            looked.append(key)
            return super().__getitem__(key)

        def get(self, key, default=None):
            looked.append(key)
            return super().get(key, default)

    loop.state.jobs = Watched(loop.state.jobs)
    loop.board._state.jobs = loop.state.jobs  # type: ignore[union-attr]
    loop.submit("last", 10, cpus=1)
    looked.clear()
    plan = schedule(loop.state, loop.now, loop.board)
    assert [start.job for start in plan.starts] == ["last"]
    assert len(looked) <= 4, looked
