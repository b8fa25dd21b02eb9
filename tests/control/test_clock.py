"""A clock that jumps moves no deadline and never runs behind the log."""

from __future__ import annotations

import time

import pytest

from muster.control.clock import SteadyClock


@pytest.mark.parametrize("jump", [-86_400.0, 86_400.0])
def test_a_wall_clock_that_is_set_changes_nothing(monkeypatch: pytest.MonkeyPatch, jump: float) -> None:
    clock = SteadyClock()
    before, real = clock.now(), time.time
    monkeypatch.setattr(time, "time", lambda: real() + jump)
    assert 0 <= clock.now() - before < 60


def test_after_a_restart_in_the_past_it_goes_on_from_the_last_event() -> None:
    clock = SteadyClock()
    last = time.time() + 3600
    clock.catch_up(last)
    assert clock.now() >= last
    clock.catch_up(last - 7200)
    assert clock.now() >= last
