"""Signs of damage in curves: what is told, when and once; and that ordinary training gives no alarm."""

from __future__ import annotations

import math
import random

from hypothesis import given
from hypothesis import strategies as st

from muster.monitor.damage import CALM, LAST, MOST, WARM_UP, Damage, Path, path_of


def told(values: list[float], metric: str = "loss") -> list[Damage]:
    return Path(metric).take(enumerate(values))


def noisy(seed: int, count: int, noise: float = 0.1) -> list[float]:
    """A loss that falls from 10 to about 2, with noise that is proportional to it."""
    rng = random.Random(seed)
    return [(2 + 8 * math.exp(-step / 200)) * math.exp(rng.gauss(0, noise)) for step in range(count)]


def test_a_value_that_is_not_finite_is_told_once_with_what_was_usual() -> None:
    (found,) = told([2.0] * 40 + [math.nan] * 30)
    assert (found.kind, found.step, found.usual) == ("not_finite", 40, 2.0)
    assert found.sentence() == "loss is nan at step 40; it was about 2 before"
    assert [one.step for one in told([math.inf])] == [0]
    assert told([math.inf])[0].sentence() == "loss is inf at step 0"


def test_it_is_told_again_only_after_it_has_ended() -> None:
    again = told([2.0] * 40 + [math.nan] + [2.0] * (CALM + 1) + [math.nan, math.nan])
    assert [one.step for one in again] == [40, 40 + CALM + 2]
    assert len(told([2.0] * 40 + [math.nan, 2.0, math.nan, 2.0, math.nan])) == 1


def test_a_jump_that_stays_is_told_and_a_single_outlier_is_not() -> None:
    path = noisy(1, 400)
    assert told([*path, path[-1] * 30, *noisy(1, 430)[401:]]) == []
    (found,) = told([*path, *[25.0] * 40])
    assert (found.kind, found.step) == ("jump", 400 + MOST - 1)
    assert found.usual is not None
    assert 2.5 < found.usual < 4
    assert "loss has jumped to 25 by step 403; it was about" in found.sentence()


def test_a_level_that_stays_becomes_the_path_and_the_next_jump_is_told() -> None:
    found = told([1.0, 1.1] * 50 + [5.0, 5.1] * 100 + [50.0] * 10)
    assert [one.step for one in found if one.kind == "jump"] == [100 + MOST - 1, 300 + MOST - 1]


def test_falling_is_no_damage() -> None:
    assert told([10.0] * 50 + [0.1] * 50) == []
    assert told([0.0] * 500) == []
    assert told([0.0] * 100 + [1e-9] * 30) == []


@given(st.integers(0, 2**32), st.floats(0.0, 0.35))
def test_ordinary_noise_gives_no_alarm(seed: int, noise: float) -> None:
    assert told(noisy(seed, 600, noise)) == []


@given(st.lists(st.floats(allow_nan=True, allow_infinity=True), max_size=300))
def test_any_numbers_are_taken_and_findings_are_rare(values: list[float]) -> None:
    found = told(values)
    assert len(found) <= 2 + 2 * len(values) / CALM
    assert all(one.usual is not None for one in found if one.kind == "jump")


@given(st.integers(0, 2**32))
def test_a_step_up_is_found_wherever_it_comes(seed: int) -> None:
    at = WARM_UP + 16 + seed % 500
    values = noisy(seed, at, 0.05)
    found = told([*values, *[max(values[-16:]) * 8] * LAST])
    assert [one.kind for one in found] == ["jump"]


def test_the_path_is_not_moved_by_outliers() -> None:
    assert path_of([1.0] * 20 + [1e9] * 10) == (1.0, 0.0)


def test_a_gradient_norm_that_doubles_is_ordinary_and_one_that_is_four_times_as_large_is_not() -> None:
    usual = [0.25 + 0.004 * (step % 3) for step in range(60)]
    for factor, found in ((2.0, 0), (4.0, 1)):
        path = Path("grad_norm")
        points = enumerate([*usual, *([0.25 * factor] * 8)])
        assert len(path.take(points)) == found
