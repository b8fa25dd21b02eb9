"""Reservations: who passes the first in line delays nobody who has a place kept for him."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.core.plan import Plan
from muster.core.rules import Preemption, QueueRules, Rules
from muster.sched.board import Board
from muster.sched.fill import Filling
from streams import board_agrees, limits_hold, plan_is_sound
from worlds import World

CHECKS = [plan_is_sound, limits_hold, board_agrees]


def made(backfill: str, depth: int = 100, order: str = "fifo", queues: tuple[str, ...] = ("default",)) -> World:
    rules = Rules(
        estimates="declared", depth=depth, preemption=Preemption(enabled=False),
        defaults=QueueRules(order=order, backfill=backfill, overdue=None),
    )  # fmt: skip
    return World(rules, dict.fromkeys(queues, "default"), checks=[*CHECKS])


def submit(world: World, name: str, seconds: float, **spec: Any) -> None:
    world.submit(name, seconds, max_duration=seconds, **spec)


def test_one_who_is_done_in_time_passes_the_first():
    world = made("easy")
    world.nodes(4, gpus=1)
    submit(world, "runs", 100, gpus=1, num_nodes=3)
    world.tick()
    submit(world, "first", 50, gpus=1, num_nodes=4)
    submit(world, "long", 200, gpus=1)
    submit(world, "short", 100, gpus=1)
    world.run()
    assert world.times("starts", "short") == [0.0]
    assert world.times("starts", "first") == [100.0]
    assert world.times("starts", "long") == [150.0]


def test_one_who_takes_other_nodes_may_last_longer():
    world = made("easy")
    world.nodes(4, gpus=1)
    submit(world, "runs", 100, gpus=1, num_nodes=2)
    world.tick()
    submit(world, "first", 50, gpus=1, num_nodes=3)
    submit(world, "long", 1000, gpus=1)
    world.run()
    assert world.times("starts", "long") == [0.0]
    assert world.times("starts", "first") == [100.0]


def test_easy_keeps_a_place_for_the_first_alone_and_conservative_for_all():
    starts = {}
    for backfill in ("easy", "conservative"):
        world = made(backfill)
        world.nodes(4, gpus=1)
        submit(world, "runs", 100, gpus=1, num_nodes=3)
        world.tick()
        submit(world, "first", 100, gpus=1, num_nodes=2)
        submit(world, "second", 100, gpus=1, num_nodes=4)
        submit(world, "long", 400, gpus=1)
        world.run()
        starts[backfill] = [world.times("starts", name)[0] for name in ("first", "second", "long")]
    assert starts == {"easy": [100.0, 400.0, 0.0], "conservative": [100.0, 200.0, 300.0]}


def test_the_depth_is_how_many_have_a_place_kept():
    world = made("conservative", depth=1)
    world.nodes(4, gpus=1)
    submit(world, "runs", 100, gpus=1, num_nodes=3)
    world.tick()
    submit(world, "first", 100, gpus=1, num_nodes=2)
    submit(world, "second", 100, gpus=1, num_nodes=4)
    submit(world, "long", 400, gpus=1)
    world.run()
    assert world.times("starts", "long") == [0.0]


def test_none_lets_nobody_pass_and_greedy_whoever_fits():
    starts = {}
    for backfill in ("none", "greedy"):
        world = made(backfill)
        world.nodes(2, gpus=1)
        submit(world, "runs", 100, gpus=1)
        world.tick()
        submit(world, "first", 50, gpus=1, num_nodes=2)
        submit(world, "long", 1000, gpus=1)
        world.run()
        starts[backfill] = [world.times("starts", name)[0] for name in ("first", "long")]
    assert starts == {"none": [100.0, 150.0], "greedy": [1000.0, 0.0]}


def test_processors_count_as_accelerators_do():
    """The filler takes other accelerators of the node, and the processors that the first will need."""
    world = made("easy")
    world.node("n0", gpus=4, cpus=8)
    submit(world, "runs", 100, gpus=2, cpus=4)
    world.tick()
    submit(world, "first", 50, gpus=2, cpus=8)
    submit(world, "filler", 1000, gpus=1, cpus=1)
    world.run()
    assert world.times("starts", "first") == [100.0]


def test_every_queue_keeps_a_place_for_its_first():
    world = made("easy", queues=("a", "b"))
    world.nodes(4, gpus=1)
    submit(world, "runs", 100, queue="a", gpus=1, num_nodes=3)
    world.tick()
    submit(world, "a1", 50, queue="a", gpus=1, num_nodes=4)
    submit(world, "b1", 50, queue="b", gpus=1, num_nodes=4)
    submit(world, "long", 1000, queue="b", gpus=1)
    world.run()
    assert world.times("starts", "a1") == [100.0]
    assert world.times("starts", "b1") == [150.0]


def test_an_elastic_gang_passes_with_as_many_nodes_as_do_no_harm():
    world = made("easy")
    world.nodes(4, gpus=1)
    submit(world, "runs", 100, gpus=1, num_nodes=2)
    world.tick()
    submit(world, "first", 50, gpus=1, num_nodes=3)
    submit(world, "wide", 1000, gpus=1, num_nodes={"min": 1, "max": 2})
    world.run(until=10.0)
    assert len(world.sits("wide")) == 1
    world.run()
    assert world.times("starts", "first") == [100.0]


def test_a_place_kept_on_a_part_of_a_busy_accelerator_is_not_there_to_be_had():
    world = made("conservative")
    world.node("n0", gpus=2)
    submit(world, "runs", 100, gpus=1)
    world.tick()
    submit(world, "both", 100, gpus=2)
    submit(world, "half", 1000, gpus=0.5)
    submit(world, "other", 1000, gpus=0.5, cpus=2)
    world.run()
    assert [world.times("starts", name)[0] for name in ("both", "half", "other")] == [100.0, 200.0, 200.0]


# --- whatever the stream ----------------------------------------------------------------------------------------------
@dataclass
class Promised:
    """The earliest time for which each job has had a place kept, as long as it stays in front."""

    deep: bool  # all of them are held to it, not the first alone
    times: dict[str, float] = field(default_factory=dict)

    def __call__(self, world: World, plan: Plan) -> None:
        board = Board()
        board.sync(world.state, world.now)
        filling = Filling(world.state, board, world.now)
        filling.start_claimed()
        filling.start_what_fits()
        kept = {one.job.id: one.start for held in filling.reservations.values() for one in held}
        for name in list(self.times):
            job = world.state.jobs.get(name)
            if job is None or job.phase != "queued" or (not self.deep and name not in kept):
                del self.times[name]
        for name, start in kept.items():
            self.times[name] = min(start, self.times.get(name, start))
        started = {start.job for start in plan.starts}
        for name, at in self.times.items():
            assert world.now < at or name in started, f"{name} was to start at {at}, and still waits at {world.now}"


streams = st.lists(
    st.tuples(
        st.integers(0, 20), st.integers(1, 20), st.integers(1, 4), st.sampled_from([1, 1, 2]), st.sampled_from([1, 3]),
    ),
    min_size=2, max_size=14,
)  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(streams, st.integers(2, 4))
def test_the_first_in_line_starts_when_it_was_to(jobs, nodes):
    """With run times that are known, and whatever passes it."""
    world = made("easy")
    world.nodes(nodes, gpus=2, cpus=4)
    _fill(world, jobs, nodes)
    world.checks.append(Promised(deep=False))
    world.run()
    assert not world.state.jobs


@settings(max_examples=60, deadline=None)
@given(streams, st.integers(2, 4))
def test_everyone_with_a_place_starts_when_he_was_to(jobs, nodes):
    """Whole nodes, so that it does not matter which of them one gets."""
    world = made("conservative")
    world.nodes(nodes, gpus=2, cpus=4)
    _fill(world, [(at, seconds, wide, 2, 1) for at, seconds, wide, _, _ in jobs], nodes)
    world.checks.append(Promised(deep=True))
    world.run()
    assert not world.state.jobs


def _fill(world: World, jobs: list[tuple[int, int, int, int, int]], nodes: int) -> None:
    for number, (at, seconds, wide, gpus, cpus) in enumerate(jobs):
        spec = {"num_nodes": min(wide, nodes), "gpus": gpus, "cpus": cpus}
        world.after(10.0 * at, lambda n=number, s=10.0 * seconds, spec=spec: submit(world, f"j{n}", s, **spec))


@pytest.mark.parametrize("backfill", ["none", "easy", "conservative"])
@settings(max_examples=8, deadline=None)
@given(jobs=streams)
def test_a_wide_gang_is_not_passed_for_ever(backfill, jobs):
    """Small ones that keep coming never hold up a gang that wants the whole cluster for longer than those before it."""
    world = made(backfill)
    world.nodes(3, gpus=2, cpus=4)
    _fill(world, [(0, seconds, 1, gpus, 1) for _, seconds, _, gpus, _ in jobs], 3)
    world.run(until=0.0)
    submit(world, "wide", 10, gpus=2, num_nodes=3)
    before = sum(10.0 * seconds for _, seconds, _, _, _ in jobs)
    for i in range(30):
        world.after(10.0 * i, lambda i=i: submit(world, f"small{i}", 100, gpus=1))
    world.run()
    assert world.times("starts", "wide")[0] <= before
