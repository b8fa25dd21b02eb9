"""What a run used and cost."""

from __future__ import annotations

import pytest

from muster.core.job import Attempt, Worker
from muster.core.seat import Seat
from muster.monitor.cost import cost_of


def attempt(seats, planned, running, ended, pool="h100"):
    return Attempt(1, planned, [Worker(seat) for seat in seats], running_at=running, ended_at=ended, pool=pool)


PRICES = {"h100": 2.0, "cpu": 0.5}


def test_accelerators_are_paid_from_the_plan_to_the_end_of_every_attempt():
    gang = [Seat("a", (0, 1)), Seat("b", (0, 1))]
    found = cost_of([attempt(gang, 0, 60, 1800), attempt(gang, 3600, 3700, 5400)], PRICES.__getitem__, 9999)
    assert found.node_hours == pytest.approx(2.0)
    assert found.accelerator_hours == pytest.approx(4.0)
    assert found.amount == pytest.approx(8.0)
    assert found.startup == pytest.approx(160)


def test_a_pool_without_accelerators_is_paid_by_the_node():
    found = cost_of([attempt([Seat("a"), Seat("b")], 0, 0, 3600, "cpu")], PRICES.__getitem__, 0)
    assert (found.accelerator_hours, found.amount) == (0, pytest.approx(1.0))


def test_a_part_of_an_accelerator_costs_a_part():
    found = cost_of([attempt([Seat("a", (3,), 250)], 0, 0, 3600)], PRICES.__getitem__, 0)
    assert found.amount == pytest.approx(0.5)


def test_one_that_still_runs_is_paid_up_to_now_and_one_that_never_ran_is_all_start_up():
    found = cost_of([attempt([Seat("a", (0,))], 100, None, None)], PRICES.__getitem__, 1900)
    assert found.amount == pytest.approx(1.0)
    assert found.startup == pytest.approx(1800)
