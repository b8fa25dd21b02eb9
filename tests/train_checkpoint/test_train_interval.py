"""The interval between saves: close to what loses least time, within its bounds, and explained."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.train.checkpoint import choose, failures_per_second
from muster.train.checkpoint.interval import DEVICE_HOURS, LONGEST, ROOM, SHORTEST


def lost(interval: float, stall: float, between: float) -> float:
    """Time for a unit of work, with failures that come as a Poisson process (the model that Daly solves)."""
    return between * math.expm1(min(700.0, (interval + stall) / between)) / interval


@given(st.floats(0.05, 60), st.floats(600, 3e6))
def test_nothing_else_loses_less(stall, between):
    chosen = choose(stall, 0.0, 1, 1 / between).seconds
    best = min((lost(math.exp(x / 50), stall, between), math.exp(x / 50)) for x in range(-100, 650))
    if SHORTEST < chosen < LONGEST:
        assert lost(chosen, stall, between) <= best[0] * 1.01
    elif chosen == LONGEST:
        assert best[1] > LONGEST * 0.9
    else:
        assert best[1] < SHORTEST * 1.1


@given(st.floats(0, 100), st.floats(0, 1e5), st.integers(0, 10**13), st.floats(0, 1))
def test_it_is_within_bounds_and_says_why(stall, write, size, rate):
    chosen = choose(stall, write, size, rate)
    assert chosen.seconds >= max(SHORTEST, ROOM * write)
    assert chosen.seconds <= max(LONGEST, ROOM * write)
    assert chosen.why.startswith("a save every ")
    assert chosen.why.endswith(".")
    assert chosen.steps(0.5) >= 1


def test_the_words_of_an_886m_model_on_128_devices():
    chosen = choose(0.8, 9.0, 10_600_000_000, failures_per_second(128))
    assert chosen.why == (
        "a save every 25.0 min: a save of 10.6 GB stops training for 800 ms and is written in 9.0 s, and a failure is "
        "expected every 16.3 days (Young and Daly)."
    )
    assert chosen.steps(0.35) == round(chosen.seconds / 0.35)
    slow = choose(0.1, 3000.0, 10**12, failures_per_second(16_384))
    assert slow.seconds == ROOM * 3000
    assert "would be best by that, but a save must be written before the next begins" in slow.why
    assert "more than 6.0 h is not risked" in choose(50.0, 60.0, 10**6, 0.0).why


def test_failures_that_were_seen_count():
    assert failures_per_second(1) == pytest.approx(1 / DEVICE_HOURS / 3600)
    assert failures_per_second(64) == pytest.approx(64 * failures_per_second(1))
    quiet, bad = failures_per_second(64, 0, 30 * 86400), failures_per_second(64, 5, 86400)
    assert quiet < failures_per_second(64) < bad
    assert bad > 5 * failures_per_second(64)


@pytest.mark.parametrize("bad", [(-1, 0, 0, 0), (0, math.nan, 0, 0), (0, 0, -5, 0), (0, 0, 0, math.inf)])
def test_numbers_that_are_none_are_refused(bad):
    with pytest.raises(ValueError, match="expected numbers from 0 on"):
        choose(*bad)
