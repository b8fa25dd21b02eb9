"""Reservations that are made only when one is needed decide what reservations made at once decide."""

from __future__ import annotations

import pytest
from hypothesis import given, note, settings

import muster.sched.reservations
from muster.core.plan import Plan
from muster.core.rules import QueueRules, Rules
from muster.sched.backfill import reserve
from muster.sched.outlook import Outlook
from muster.sched.reservations import Reservations
from muster.sched.schedule import schedule
from scheduler_kit import SchedulerLoop
from streams import Case, cases, decisions


@settings(max_examples=25, deadline=None)
@given(cases(backfill="conservative"))
def test_deferred_or_at_once(case: Case):
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
