"""Learning-rate schedules: their ends, their shape, and what doesn't fit a run."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.train.schedule import Schedule

KINDS = st.sampled_from(["cosine", "linear", "constant"])


@given(kind=KINDS, warmup=st.integers(0, 50), rest=st.integers(1, 200), floor=st.floats(0, 1), decay=st.integers(0, 50))
def test_it_rises_to_one_falls_to_the_floor_and_never_rises_again(kind, warmup, rest, floor, decay):
    total = warmup + rest
    schedule = Schedule(kind, warmup, floor, min(decay, rest) if kind == "constant" else 0)
    assert schedule.wrong(total) is None
    factors = [schedule.factor(step, total) for step in range(total)]
    assert all(0 < factor <= 1 or floor == 0 for factor in factors)
    assert factors[:warmup] == [pytest.approx((step + 1) / warmup) for step in range(warmup)]
    falling = factors[warmup:]
    assert falling[0] == pytest.approx(1) or (kind == "constant" and schedule.decay == rest)
    assert all(after <= before + 1e-12 for before, after in pairwise(falling))
    assert all(factor >= floor - 1e-12 for factor in falling)
    if kind != "constant" or schedule.decay:
        assert schedule.factor(total, total) == pytest.approx(floor)


def test_known_values():
    assert Schedule("cosine", floor=0.0).factor(50, 100) == pytest.approx(0.5)
    assert Schedule("linear", floor=0.2).factor(25, 100) == pytest.approx(0.8)
    assert [Schedule("constant", decay=10, floor=0.0).factor(step, 100) for step in (0, 90, 95)] == [1, 1, 0.5]
    assert Schedule("linear", steps=10, floor=0.1).factor(99, 100) == pytest.approx(0.1)


@pytest.mark.parametrize(
    ("schedule", "words"),
    [
        (Schedule(warmup=100), "warmup 100 leaves none of the 100 steps"),
        (Schedule("constant", warmup=60, decay=50), "warmup 60 + decay 50 = 110 is past the 100 steps"),
        (Schedule("cosine", decay=5), "decay 5 is of the constant schedule"),
        (Schedule(warmup=20, steps=10), "none of the 10 steps"),
    ],
)
def test_what_does_not_fit_is_told_with_the_numbers(schedule, words):
    assert words in (schedule.wrong(100) or "")
