"""What trials are expected to take, to cost and to improve."""

from __future__ import annotations

import numpy as np
import pytest

from muster.tune.expected import Expected, Need, entries, next_gain
from muster.tune.tables import Tables
from tune_kit import a_trial, a_view, spec_of


def expected_of(*trials: object, **given: float) -> Expected:
    tables = Tables(entries(1.0))
    tables.follow(a_view(spec_of("asha"), *trials))  # type: ignore[arg-type]
    return Expected(tables, 1.0, **given)


def test_a_trial_goes_on_at_its_own_pace_and_price() -> None:
    """It was at level 3 after 3 seconds, and has cost 10 a second; a complete one took 12 seconds at a pace of 1."""
    slow = a_trial(0, {1: 0.5, 3: 0.4}, "paused", seconds=6.0, cost=60)
    done = a_trial(1, {1: 0.5, 3: 0.4, 9: 0.3}, "ended", outcome="complete", seconds=12.0, cost=24)
    known = expected_of(slow, done)
    assert known.segment(done, 9) == Need(0.0, 0.0)
    assert known.segment(slow, 9) == Need(6.0, 60.0)
    assert known.segment(slow, None) == Need(9.0, 90.0)
    assert known.whole() == Need(12.0, 12.0 * 10)  # at the higher of two prices


def test_before_any_trial_has_ended_the_estimate_counts() -> None:
    assert expected_of(seconds=100.0, cost=7.0).whole() == Need(100.0, 7.0)
    assert expected_of().whole() == Need(None, None)
    assert expected_of(a_trial(0)).segment(a_trial(0), 3) == Need(None, None)
    assert expected_of(a_trial(0), seconds=100.0).segment(a_trial(0), None) == Need(100.0, None)


def test_improvement_is_that_of_a_normal_distribution() -> None:
    """From 1 to 3 five trials gained 0.1, 0.2, 0.3, 0.4 and 0.5: 0.3 on average, with a deviation of 0.158."""
    passed = [a_trial(n, {1: 1.0, 3: 0.9 - 0.1 * n}, "paused") for n in range(5)]
    known = expected_of(*passed, a_trial(5, {1: 0.8}, "paused"), a_trial(6, {1: 5.0}, "paused"))
    # The best at 3 has 0.5, which is what the sixth is expected to have: 0.158 · 0.399 in 2 seconds.
    assert known.improvement(a_trial(5, {1: 0.8}, "paused"), 3) == pytest.approx(0.15811 * 0.39894 / 2, rel=1e-3)
    assert known.improvement(a_trial(6, {1: 5.0}, "paused"), 3) == pytest.approx(0, abs=1e-9)
    assert expected_of(*passed[:4]).improvement(a_trial(5, {1: 0.8}, "paused"), 3) is None


def test_a_new_trial_pays_for_its_way_as_far_as_others_went() -> None:
    """Five of ten went on from 1 to 3: a new one takes 1 second, and 2 more in half of the cases."""
    far = [a_trial(n, {1: 1.0 + 0.1 * n, 3: 0.9 + 0.1 * n}, "paused") for n in range(5)]
    near = [a_trial(n, {1: 1.0 + 0.1 * n}, "paused") for n in range(5, 10)]
    known = expected_of(*far, *near)
    found = known.improvement_of_new(3)
    losses = np.array([1.0 + 0.1 * n for n in range(10)])
    draws = np.random.default_rng(0).normal(losses.mean() - 0.1, losses.std(ddof=1), 200_000)
    assert found == pytest.approx(np.maximum(0.9 - draws, 0).mean() / 2.0, rel=0.02)


def test_the_next_gain_of_ten_draws() -> None:
    """Distances of 1 between the best six: 1, 2, 3, 4 and 5 times 1 is 3 on average, with a chance of 1 in 11."""
    assert next_gain([float(n) for n in range(10)]) == pytest.approx(3 / 11)
    assert next_gain([1.0] * 9) is None
    assert next_gain([1.0] * 30) == 0


@pytest.mark.parametrize("draw", ["exponential", "normal"])
def test_the_next_gain_is_about_what_the_next_draw_gains(draw: str) -> None:
    """Over 4,000 studies of 30 trials each. A normal tail is thinner than an exponential one: too much is expected
    then, so that a study rather goes on than ends too early."""
    random = np.random.default_rng(1)
    values = random.exponential(size=(4000, 31)) * -1 if draw == "exponential" else random.normal(size=(4000, 31))
    gained = np.maximum(values[:, :30].min(axis=1) - values[:, 30], 0).mean()
    estimated = np.mean([next_gain(row.tolist()) for row in values[:, :30]])
    low, high = (0.9, 1.1) if draw == "exponential" else (1.0, 2.0)
    assert low * gained < estimated < high * gained
