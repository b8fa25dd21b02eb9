"""Whatever the cluster, the rules and the day: never too much, never half a gang, always the same, and all get done."""

from __future__ import annotations

import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st

from muster.core.plan import Plan
from muster.core.rules import QueueRules, Rules
from muster.sched.schedule import schedule
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
from worlds import World, fold

LONG = 20_000.0  # seconds: ten times what all the work of a case takes one after the other


@settings(max_examples=150, deadline=None)
@given(cases())
def test_never_too_much_never_half_a_gang_and_the_same_from_nothing(case: Case):
    """The key test of what is kept between rounds: at every step of every history a new board says the same."""
    note(str(case))
    world = case.world()
    world.checks += [plan_is_sound, limits_hold, board_agrees]
    world.run(until=2000.0)


@settings(max_examples=60, deadline=None)
@given(cases(needs=True))
def test_nobody_starts_before_what_it_needs(case: Case):
    note(str(case))
    world = case.world()
    world.checks += [plan_is_sound, needs_hold, board_agrees]
    world.run(until=1000.0)
    again = fold(world.log)
    assert (again.dependents, again.settled) == (world.state.dependents, world.state.settled)


@settings(max_examples=30, deadline=None)
@given(cases(needs=True, plain=True))
def test_nobody_waits_for_ever_for_another(case: Case):
    """Jobs that need one that was stopped or failed end too, and so do those behind them."""
    note(str(case))
    world = case.world()
    world.run(until=LONG)
    for name, gpus, cpus, pool, labels in case.nodes:
        world.node(name, gpus, cpus, pool, **labels)
        world.health(name, "healthy")
        world.away(pool, "")
    world.run(until=world.now + LONG)
    assert not world.state.jobs, f"at {world.now}: {world.phases()}"
    assert not world.state.dependents
    assert not world.state.settled


@pytest.mark.parametrize(("seed", "jobs", "order"), [(7157854, 15, "predicted"), (4166048750, 14, "priority")])
def test_histories_that_once_went_wrong(seed: int, jobs: int, order: str):
    """More overdue streams than are looked at; an elastic gang beside a reservation and at its queue's limit."""
    world = case_of(seed, jobs, order).world()
    world.checks += [plan_is_sound, limits_hold, board_agrees]
    world.run(until=1500.0)


@settings(max_examples=40, deadline=None)
@given(cases(), st.sampled_from([5.0, 20.0, 60.0]))
def test_rounds_at_fixed_times(case: Case, every: float):
    note(str(case))
    case.rules = case.rules.model_copy(update={"round": every})
    world = case.world()
    world.checks += [plan_is_sound, limits_hold, board_agrees, lambda world, plan: _on_the_beat(world, plan, every)]
    world.run(until=1000.0)


def _on_the_beat(world: World, plan: Plan, every: float) -> None:
    assert not (plan.starts or plan.yields) or world.now % every == 0


@settings(max_examples=40, deadline=None)
@given(cases(), st.integers(1, 20))
def test_the_log_alone_gives_the_same_plan(case: Case, steps: int):
    """Events in, state out, plan out: nothing else matters, not even how the state was reached."""
    note(str(case))
    world = case.world()
    world.tick()
    for _ in range(steps):
        if not world.step():
            break
    again = fold(world.log)
    assert decisions(schedule(again, world.now)) == decisions(schedule(world.state, world.now))


@pytest.mark.parametrize("backfill", BACKFILLS)
@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_everyone_who_can_run_does_in_the_end(backfill: str, data: st.DataObject):
    """A finite stream of gangs that fit, every order, preemption too: all are done, after not too many stops."""
    case: Case = data.draw(cases(backfill=backfill, troubled=False, plain=True))
    note(str(case))
    world = case.world()
    world.run(until=LONG)
    assert not world.state.jobs, f"at {world.now}: {world.phases()}"
    assert max(world.preemptions.values()) <= 4 * len(case.jobs), world.preemptions


@settings(max_examples=40, deadline=None)
@given(cases())
def test_everyone_is_done_when_the_trouble_is_over(case: Case):
    """Nodes that were lost or drained come back, all pools are open to all, and nothing is left waiting."""
    note(str(case))
    calm = case.rules.model_copy(update={"queues": {}, "pools": {}, "projects": {}, "defaults": QueueRules()})
    world = case.world()
    world.run(until=1000.0)
    for name, gpus, cpus, pool, labels in case.nodes:
        world.node(name, gpus, cpus, pool, **labels)
        world.health(name, "healthy")
        world.away(pool, "")
    world.set_rules(calm)
    for job in list(world.state.jobs.values()):
        if job.spec.topology.require or job.spec.pool or job.spec.num_nodes > 1 or not job.ask.accelerators:
            world.stop(job.id)  # what no set of nodes of its pool may hold
    world.checks += [plan_is_sound]
    world.run(until=world.now + LONG)
    assert not world.state.jobs, f"at {world.now}: {world.phases()}"


@pytest.mark.parametrize("order", ORDERS)
def test_what_waits_is_not_looked_at_one_by_one(order: str):
    """A round in which nothing changed costs nothing for the hundreds that wait."""
    world = World(Rules(defaults=QueueRules(order=order)))
    world.node("n0", gpus=1, cpus=8)
    for i in range(300):
        world.submit(f"j{i}", 10_000, gpus=1)
    world.tick()
    looked: list[str] = []

    class Watched(dict):
        def __getitem__(self, key):
            looked.append(key)
            return super().__getitem__(key)

        def get(self, key, default=None):
            looked.append(key)
            return super().get(key, default)

    world.state.jobs = Watched(world.state.jobs)
    world.board._state.jobs = world.state.jobs  # type: ignore[union-attr]
    world.submit("last", 10, cpus=1)
    looked.clear()
    plan = schedule(world.state, world.now, world.board)
    assert [start.job for start in plan.starts] == ["last"]
    assert len(looked) <= 4, looked
