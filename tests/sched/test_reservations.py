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
from muster.sched.reservations import Reservations
from scheduler_kit import SchedulerLoop
from streams import board_agrees, limits_hold, plan_is_sound

CHECKS = [plan_is_sound, limits_hold, board_agrees]


def made(backfill: str, depth: int = 100, order: str = "fifo", queues: tuple[str, ...] = ("default",)) -> SchedulerLoop:
    rules = Rules(
        estimates="declared", depth=depth, preemption=Preemption(enabled=False),
        defaults=QueueRules(order=order, backfill=backfill, overdue=None),
    )  # fmt: skip
    return SchedulerLoop(rules, dict.fromkeys(queues, "default"), checks=[*CHECKS])


def submit(loop: SchedulerLoop, name: str, seconds: float, **spec: Any) -> None:
    loop.submit(name, seconds, max_duration=seconds, **spec)


def test_one_who_is_done_in_time_passes_the_first():
    loop = made("easy")
    loop.nodes(4, gpus=1)
    submit(loop, "runs", 100, gpus=1, num_nodes=3)
    loop.tick()
    submit(loop, "first", 50, gpus=1, num_nodes=4)
    submit(loop, "long", 200, gpus=1)
    submit(loop, "short", 100, gpus=1)
    loop.run()
    assert loop.times("starts", "short") == [0.0]
    assert loop.times("starts", "first") == [100.0]
    assert loop.times("starts", "long") == [150.0]


def test_one_who_takes_other_nodes_may_last_longer():
    loop = made("easy")
    loop.nodes(4, gpus=1)
    submit(loop, "runs", 100, gpus=1, num_nodes=2)
    loop.tick()
    submit(loop, "first", 50, gpus=1, num_nodes=3)
    submit(loop, "long", 1000, gpus=1)
    loop.run()
    assert loop.times("starts", "long") == [0.0]
    assert loop.times("starts", "first") == [100.0]


def test_easy_keeps_a_place_for_the_first_alone_and_conservative_for_all():
    starts = {}
    for backfill in ("easy", "conservative"):
        loop = made(backfill)
        loop.nodes(4, gpus=1)
        submit(loop, "runs", 100, gpus=1, num_nodes=3)
        loop.tick()
        submit(loop, "first", 100, gpus=1, num_nodes=2)
        submit(loop, "second", 100, gpus=1, num_nodes=4)
        submit(loop, "long", 400, gpus=1)
        loop.run()
        starts[backfill] = [loop.times("starts", name)[0] for name in ("first", "second", "long")]
    assert starts == {"easy": [100.0, 400.0, 0.0], "conservative": [100.0, 200.0, 300.0]}


def test_the_depth_is_how_many_have_a_place_kept():
    loop = made("conservative", depth=1)
    loop.nodes(4, gpus=1)
    submit(loop, "runs", 100, gpus=1, num_nodes=3)
    loop.tick()
    submit(loop, "first", 100, gpus=1, num_nodes=2)
    submit(loop, "second", 100, gpus=1, num_nodes=4)
    submit(loop, "long", 400, gpus=1)
    loop.run()
    assert loop.times("starts", "long") == [0.0]


def test_none_lets_nobody_pass_and_greedy_whoever_fits():
    starts = {}
    for backfill in ("none", "greedy"):
        loop = made(backfill)
        loop.nodes(2, gpus=1)
        submit(loop, "runs", 100, gpus=1)
        loop.tick()
        submit(loop, "first", 50, gpus=1, num_nodes=2)
        submit(loop, "long", 1000, gpus=1)
        loop.run()
        starts[backfill] = [loop.times("starts", name)[0] for name in ("first", "long")]
    assert starts == {"none": [100.0, 150.0], "greedy": [1000.0, 0.0]}


def test_processors_count_as_accelerators_do():
    """The filler takes other accelerators of the node, and the processors that the first will need."""
    loop = made("easy")
    loop.node("n0", gpus=4, cpus=8)
    submit(loop, "runs", 100, gpus=2, cpus=4)
    loop.tick()
    submit(loop, "first", 50, gpus=2, cpus=8)
    submit(loop, "filler", 1000, gpus=1, cpus=1)
    loop.run()
    assert loop.times("starts", "first") == [100.0]


def test_every_queue_keeps_a_place_for_its_first():
    loop = made("easy", queues=("a", "b"))
    loop.nodes(4, gpus=1)
    submit(loop, "runs", 100, queue="a", gpus=1, num_nodes=3)
    loop.tick()
    submit(loop, "a1", 50, queue="a", gpus=1, num_nodes=4)
    submit(loop, "b1", 50, queue="b", gpus=1, num_nodes=4)
    submit(loop, "long", 1000, queue="b", gpus=1)
    loop.run()
    assert loop.times("starts", "a1") == [100.0]
    assert loop.times("starts", "b1") == [150.0]


def test_an_elastic_gang_passes_with_as_many_nodes_as_do_no_harm():
    loop = made("easy")
    loop.nodes(4, gpus=1)
    submit(loop, "runs", 100, gpus=1, num_nodes=2)
    loop.tick()
    submit(loop, "first", 50, gpus=1, num_nodes=3)
    submit(loop, "wide", 1000, gpus=1, num_nodes={"min": 1, "max": 2})
    loop.run(until=10.0)
    assert len(loop.sits("wide")) == 1
    loop.run()
    assert loop.times("starts", "first") == [100.0]


def test_a_place_kept_on_a_part_of_a_busy_accelerator_is_not_there_to_be_had():
    loop = made("conservative")
    loop.node("n0", gpus=2)
    submit(loop, "runs", 100, gpus=1)
    loop.tick()
    submit(loop, "both", 100, gpus=2)
    submit(loop, "half", 1000, gpus=0.5)
    submit(loop, "other", 1000, gpus=0.5, cpus=2)
    loop.run()
    assert [loop.times("starts", name)[0] for name in ("both", "half", "other")] == [100.0, 200.0, 200.0]


# --- whatever the stream ----------------------------------------------------------------------------------------------
class Kept(Reservations):
    """Remembers the reservations of a pass, which are forgotten at its end; those that it deferred are made then."""

    def clear(self) -> None:
        self._make_deferred()
        self.starts = {one.job.id: one.start for held in self.by_pool.values() for one in held}
        super().clear()


@dataclass
class Promised:
    """The earliest time for which each job has had a place kept, as long as it stays in front."""

    deep: bool  # all of them are held to it, not the first alone
    most: int = 0  # places that were kept at once
    times: dict[str, float] = field(default_factory=dict)

    def __call__(self, loop: SchedulerLoop, plan: Plan) -> None:
        board = Board()
        board.sync(loop.state, loop.now)
        filling = Filling(loop.state, board, loop.now)
        filling.reservations = places = Kept(loop.state, board, loop.now, filling.gang, filling.closing)
        places.starts = {}  # of a pass that had nobody to look at
        filling.start_claimed()
        filling.start_what_fits()
        kept = places.starts
        self.most = max(self.most, len(kept))
        for name in list(self.times):
            job = loop.state.jobs.get(name)
            if job is None or job.phase != "queued" or (not self.deep and name not in kept):
                del self.times[name]
        for name, start in kept.items():
            self.times[name] = min(start, self.times.get(name, start))
        started = {start.job for start in plan.starts}
        for name, at in self.times.items():
            assert loop.now < at or name in started, f"{name} was to start at {at}, and still waits at {loop.now}"


def test_the_check_sees_the_places_that_are_kept():
    for backfill in ("easy", "conservative"):
        loop, promised = made(backfill), Promised(deep=backfill == "conservative")
        loop.nodes(2, gpus=1)
        loop.checks.append(promised)
        for number in range(4):
            submit(loop, f"j{number}", 10, gpus=1, num_nodes=2)
        loop.run()
        assert promised.most >= 1


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
    loop = made("easy")
    loop.nodes(nodes, gpus=2, cpus=4)
    _fill(loop, jobs, nodes)
    loop.checks.append(Promised(deep=False))
    loop.run()
    assert not loop.state.jobs


@settings(max_examples=60, deadline=None)
@given(streams, st.integers(2, 4))
def test_everyone_with_a_place_starts_when_he_was_to(jobs, nodes):
    """Whole nodes, so that it does not matter which of them one gets."""
    loop = made("conservative")
    loop.nodes(nodes, gpus=2, cpus=4)
    _fill(loop, [(at, seconds, wide, 2, 1) for at, seconds, wide, _, _ in jobs], nodes)
    loop.checks.append(Promised(deep=True))
    loop.run()
    assert not loop.state.jobs


def _fill(loop: SchedulerLoop, jobs: list[tuple[int, int, int, int, int]], nodes: int) -> None:
    for number, (at, seconds, wide, gpus, cpus) in enumerate(jobs):
        spec = {"num_nodes": min(wide, nodes), "gpus": gpus, "cpus": cpus}
        loop.after(10.0 * at, lambda n=number, s=10.0 * seconds, spec=spec: submit(loop, f"j{n}", s, **spec))


@pytest.mark.parametrize("backfill", ["none", "easy", "conservative"])
@settings(max_examples=8, deadline=None)
@given(jobs=streams)
def test_a_wide_gang_is_not_passed_for_ever(backfill, jobs):
    """Small ones that keep coming never hold up a gang that wants the whole cluster for longer than those before it."""
    loop = made(backfill)
    loop.nodes(3, gpus=2, cpus=4)
    _fill(loop, [(0, seconds, 1, gpus, 1) for _, seconds, _, gpus, _ in jobs], 3)
    loop.run(until=0.0)
    submit(loop, "wide", 10, gpus=2, num_nodes=3)
    before = sum(10.0 * seconds for _, seconds, _, _, _ in jobs)
    for i in range(30):
        loop.after(10.0 * i, lambda i=i: submit(loop, f"small{i}", 100, gpus=1))
    loop.run()
    assert loop.times("starts", "wide")[0] <= before
