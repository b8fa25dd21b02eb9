"""Reservations that are made only when one is needed decide what reservations made at once decide."""

from __future__ import annotations

from itertools import islice

import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st

import muster.sched.reservations
from muster.core.plan import Plan
from muster.core.resources import WHOLE
from muster.core.rules import QueueRules, Rules
from muster.sched.backfill import reserve
from muster.sched.board import Board
from muster.sched.outlook import Outlook
from muster.sched.reservations import Reservations
from muster.sched.schedule import schedule
from scheduler_kit import SchedulerLoop
from streams import Case, cases, decisions


@pytest.mark.parametrize("backfill", ["conservative", "easy"])
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_deferred_or_at_once(backfill: str, data: st.DataObject):
    case: Case = data.draw(cases(backfill=backfill))
    note(str(case))
    loop = case.loop()
    loop.checks += [_as_at_once]
    loop.run(until=500.0)


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_no_more_reservations_than_the_depth(depth: int):
    """One job after the other wants what the running gang leaves; a short one passes all of them, as far as it may."""
    rules = Rules(depth=depth, defaults=QueueRules(order="fifo", backfill="conservative"))
    loop = SchedulerLoop(rules, checks=[_as_at_once])
    loop.nodes(2)
    loop.submit("first", 100.0, gpus=6, max_duration="100s")
    for number in range(4):
        loop.submit(f"wide{number}", 50.0, gpus=8, num_nodes=2, max_duration="50s")
    loop.submit("long", 300.0, gpus=2, max_duration="300s")
    loop.submit("short", 20.0, gpus=2, max_duration="20s")
    loop.run(until=1000.0)
    assert loop.times("starts", "short") == [0.0]
    assert loop.times("starts", "long") > [0.0]
    assert not loop.state.jobs


def _as_at_once(loop: SchedulerLoop, plan: Plan) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Reservations, "_is_sure", lambda self, shape: False)
        patch.setattr(muster.sched.reservations, "reserve", lambda *given: reserve(*given[:6]))
        patch.setattr(Outlook, "may_fit", lambda *given: True)
        patch.setattr(Outlook, "first_fit", lambda *given: 0)
        assert decisions(schedule(loop.state, loop.now)) == decisions(plan)


@pytest.mark.parametrize("backfill", ["conservative", "easy"])
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_nodes_are_counted_as_if_the_gangs_had_left(backfill: str, data: st.DataObject):
    """The first time at which enough nodes have enough accelerators, and each count on the way there."""
    case: Case = data.draw(cases(backfill=backfill))
    note(str(case))
    loop = case.loop()
    loop.checks += [_counted_alike]
    loop.run(until=300.0)


def _counted_alike(loop: SchedulerLoop, plan: Plan) -> None:
    board = Board()
    board.sync(loop.state, loop.now)
    for shape in {one.stream.shape for one in board.waiting.queued.values()}:
        ask = shape.gang.ask
        if not ask.accelerators or ask.share < WHOLE:
            continue
        for pool in shape.gang.pools:
            outlook, plain = (Outlook(board, loop.state.rules, pool, loop.now) for _ in range(2))
            counts = [board.free.fitting(ask, pool)]
            for index, _ in islice(enumerate(list(plain.moments(loop.now, []))), 1, None):
                plain.go(index)
                counts.append(board.free.fitting(ask, pool))
            plain.back()
            for nodes in (max(counts), 1, max(counts) + 1):
                first = next((index for index, count in enumerate(counts) if count >= nodes), None)
                found = outlook.first_fit(ask, nodes)
                if any(seat.share < WHOLE for known in board.gangs.running.values() for seat in known.seats):
                    assert first is None or (
                        found is not None and found <= first
                    )  # the others of a shared one may stay
                else:
                    assert found == first
