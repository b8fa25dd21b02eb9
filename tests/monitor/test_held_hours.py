"""How long a run held nodes and accelerators."""

from __future__ import annotations

import pytest

from muster.core.job import Attempt, Worker
from muster.core.seat import Seat
from muster.monitor.held_hours import held_hours


def attempt(seats, planned, running, ended, pool="h100"):
    return Attempt(1, planned, [Worker(seat) for seat in seats], running_at=running, ended_at=ended, pool=pool)


def test_accelerators_are_held_from_the_plan_to_the_end_of_every_attempt():
    gang = [Seat("a", (0, 1)), Seat("b", (0, 1))]
    found = held_hours([attempt(gang, 0, 60, 1800), attempt(gang, 3600, 3700, 5400)], 9999)
    assert found.node_hours == pytest.approx(2.0)
    assert found.accelerator_hours == pytest.approx(4.0)
    assert found.startup == pytest.approx(160)


def test_a_part_of_an_accelerator_is_a_part_of_an_hour():
    assert held_hours([attempt([Seat("a", (3,), 250)], 0, 0, 3600)], 0).accelerator_hours == pytest.approx(0.25)
    assert held_hours([attempt([Seat("a"), Seat("b")], 0, 0, 3600, "cpu")], 0).accelerator_hours == 0


def test_one_that_still_runs_counts_up_to_now_and_one_that_never_ran_is_all_start_up():
    found = held_hours([attempt([Seat("a", (0,))], 100, None, None)], 1900)
    assert found.accelerator_hours == pytest.approx(0.5)
    assert found.startup == pytest.approx(1800)
