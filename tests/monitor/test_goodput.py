"""What restarts cost, on hand-made trails."""

from __future__ import annotations

from muster.core.job import Attempt
from muster.monitor.goodput import Trail, summarise


def attempt(number: int, running: float, ended: float, from_step: int | None = None) -> Attempt:
    return Attempt(number, running - 1, [], running_at=running, ended_at=ended, from_step=from_step)


def test_a_run_without_restarts_loses_nothing() -> None:
    found = summarise([attempt(1, 0.0, 10.0)], {1: Trail(range(1, 11), range(1, 11))}, 10.0)
    assert (found.steps, found.steps_repeated, found.seconds_lost, found.goodput) == (10, 0, 0.0, 1.0)


def test_a_restart_costs_until_the_old_step_is_reached_again() -> None:
    # Steps 1 to 8 at one a second; killed; on again from the checkpoint at 5, whose next step ends at second 12.
    trails = {1: Trail(range(1, 9), [float(t) for t in range(1, 9)]), 2: Trail([6, 7, 8, 9], [12.0, 13.0, 14.0, 15.0])}
    found = summarise([attempt(1, 0.0, 8.5), attempt(2, 10.0, 15.0, from_step=5)], trails, 15.0)
    (restart,) = found.restarts
    assert (restart.at_step, restart.steps_repeated, restart.seconds_lost) == (5, 3, 6.0)
    assert (found.seconds_total, found.seconds_training, found.goodput) == (15.0, 9.0, 0.6)


def test_a_program_that_reports_nothing_loses_the_time_between_its_attempts() -> None:
    found = summarise([attempt(1, 0.0, 8.0), attempt(2, 10.0, 20.0)], {}, 20.0)
    assert (found.steps, found.seconds_lost, found.goodput) == (None, 2.0, 0.9)


def test_an_attempt_that_never_caught_up_loses_the_rest() -> None:
    trails = {1: Trail([1, 2, 3], [1.0, 2.0, 3.0]), 2: Trail([1], [8.0])}
    found = summarise([attempt(1, 0.0, 3.0), attempt(2, 5.0, 9.0)], trails, 9.0)
    assert (found.steps_repeated, found.seconds_lost) == (3, 6.0)


def test_nothing_has_run_yet() -> None:
    found = summarise([], {}, 5.0)
    assert (found.attempts, found.goodput, found.restarts) == (0, None, ())
