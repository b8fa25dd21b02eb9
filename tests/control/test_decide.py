"""A plan becomes events: starts, gangs that make place for others, and seats that are kept meanwhile."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from rig import Rig

import muster.control.loop
from muster.core.plan import Claim, Plan, Preempt, Start
from muster.core.reasons import reason
from muster.core.seat import Seat
from muster.core.state import State


@pytest.fixture
def rig():
    made = Rig()
    yield made
    made.close()


@pytest.fixture
def policy(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[State, float], Plan]], None]:
    """Puts a hand-made policy in the place of the scheduler."""

    def use(decide: Callable[[State, float], Plan]) -> None:
        monkeypatch.setattr(muster.control.loop, "schedule", lambda state, now, board: decide(state, now))

    return use


def test_a_gang_makes_place_and_its_seats_are_kept(rig: Rig, policy) -> None:
    low, high = rig.submit(gpus=4), rig.submit(gpus=4, priority="high")
    seat = Seat("n0", (0, 1, 2, 3))
    why = reason("preempted", "its node is needed")
    policy(lambda state, now: Plan(0, (Start(low, (seat,)),)))
    rig.tick(1)
    policy(lambda state, now: Plan(0, yields=(Preempt(low, why, 30.0),), claims=(Claim(high, (seat,)),)))
    rig.engine.player = Slow()
    rig.tick(1)
    assert (rig.job(low).phase, rig.job(low).stop.then, rig.job(low).stop.grace) == ("stopping", "queued", 30.0)
    assert rig.job(low).reason == why
    assert rig.job(high).claim == (seat,)
    policy(lambda state, now: Plan(0))
    rig.engine.player = None
    rig.engine.stop(low, 1, 0.0, "preempted")
    rig.tick(1)
    waiting = rig.job(low)
    assert (waiting.phase, waiting.charges, waiting.reason.code) == ("queued", {"preempted": 1}, "preempted")
    policy(lambda state, now: Plan(0, (Start(high, (seat,)),)))
    rig.tick(1)
    assert (rig.job(high).phase, rig.job(high).claim) == ("running", ())


def test_an_empty_plan_writes_nothing(rig: Rig, policy) -> None:
    rig.submit()
    policy(lambda state, now: Plan(state.version))
    before = rig.state.version
    rig.tick(3)
    assert rig.state.version == before


def test_the_plan_says_when_it_wants_to_be_asked_again(rig: Rig, policy) -> None:
    policy(lambda state, now: Plan(state.version, wake_at=now + 0.25))
    rig.tick(1)
    assert rig.controller.next_wake() == rig.clock.now() + 0.25
    policy(lambda state, now: Plan(state.version, wake_at=now))
    rig.tick(1)
    assert rig.controller.next_wake() is None


class Slow:
    """Gangs that take their time to leave."""

    def launched(self, gang) -> None:
        """It works."""

    def stopping(self, job: str, attempt: int, grace: float, reason: str) -> bool:
        return True
