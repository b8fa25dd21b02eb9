"""Pools in which nobody can preempt, and what it takes to clear the nodes that changed: as a whole search finds it."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st

from muster.core.rules import Preemption, QueueRules, Rules
from muster.sched import preemption, quiet_pools, schedule
from muster.sched.board import Board
from muster.sched.failed_preemptions import EVERYWHERE
from muster.sched.fill import Filling
from scheduler_kit import SchedulerLoop
from streams import Case, board_agrees, cases, plan_is_sound

VALUED = ("predicted", "priority", "attained")


@pytest.mark.parametrize("order", VALUED)
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_where_a_pool_is_quiet_every_candidate_fails(order: str, data: st.DataObject):
    """The whole search, run where it would be left out, finds nobody who may preempt."""
    case: Case = data.draw(cases(order=order))
    note(str(case))
    loop = case.loop()
    with pytest.MonkeyPatch.context() as patch:
        for module in (preemption, schedule):
            patch.setattr(module, "is_quiet", lambda board, pool, now: _checked(loop, board, pool, now, Counter()))
        loop.checks += [plan_is_sound, board_agrees]
        loop.run(until=1000.0)


def test_a_full_pool_is_quiet_until_somebody_who_matters_comes():
    rules = Rules(preemption=Preemption(min_run=0.0), defaults=QueueRules(order="priority"))
    loop, found = SchedulerLoop(rules, checks=[plan_is_sound, board_agrees]), Counter[bool]()
    loop.node("n0", gpus=4)
    loop.submit("runs", 10_000, gpus=4, priority=50)
    loop.tick()
    loop.submit("equal", 100, gpus=4, priority=50)
    loop.tick()
    with pytest.MonkeyPatch.context() as patch:
        for module in (preemption, schedule):
            patch.setattr(module, "is_quiet", lambda board, pool, now: _checked(loop, board, pool, now, found))
        loop.submit("lower", 100, gpus=4, priority=20)
        loop.tick()
        assert found[True]
        loop.submit("higher", 100, gpus=4, priority=90)
        loop.tick()
    assert found[False]
    assert loop.job("runs").phase == "stopping"


@settings(max_examples=40, deadline=None)
@given(cases(order="predicted"), st.integers(1, 8))
def test_the_cheapest_of_the_changed_nodes_is_that_of_one_by_one(case: Case, need: int):
    note(str(case))
    loop = case.loop()

    def same(loop: SchedulerLoop, plan: object) -> None:
        board = loop.board
        for pool, log in board.gangs.easier_nodes.items():
            for seen in {0, log.end // 2, log.end}:
                names, slots = log.since(seen), board.free.slots
                found = board.prices.cheapest(slots, pool, seen, need, loop.now)
                if names is not None and EVERYWHERE not in names:
                    each = [board.prices.least(slots[name], need, loop.now) for name in names if name in slots]
                    assert found <= min(each, default=found)
                else:
                    assert found == float("-inf")

    loop.checks += [same]
    loop.run(until=600.0)


def _checked(loop: SchedulerLoop, board: Board, pool: str, now: float, found: Counter[bool]) -> bool:
    quiet = quiet_pools.is_quiet(board, pool, now)
    found[quiet] += 1
    if quiet:
        filling = Filling(loop.state, board, now)
        for stream in list(preemption._candidate_streams(loop.state, board, pool, now)):
            assert not preemption._may_help(loop.state.rules, board, filling, stream, now), (pool, stream)
    return quiet
