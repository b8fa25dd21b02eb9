"""The verdicts on a short run: error rates by simulation with seeds, and runs with one thing wrong."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.checks.canary import ALPHA, Canary, Planned, check_canary, full_run
from muster.checks.forecast import forecast, profile
from muster.checks.trend import probability, trend

RUNS = 1500
PLANNED = Planned(100_000, items_per_second=600, capacity=8e9, price_per_hour=12, max_hours=4, max_cost=50)


def noise(rng: np.random.Generator, runs: int, steps: int, likeness: float, heavy: bool = False) -> np.ndarray:
    """Rows of a stationary series whose neighbours are alike so much."""
    shape = (runs, steps + 100)
    drawn = rng.standard_t(3, shape) if heavy else rng.normal(size=shape)
    for step in range(1, shape[1]):
        drawn[:, step] += likeness * drawn[:, step - 1]
    return drawn[:, 100:]


@pytest.mark.parametrize("steps", [60, 100, 500])
@pytest.mark.parametrize("likeness", [0.0, 0.5, 0.9, 0.97])
def test_no_progress_is_taken_for_progress_as_rarely_as_stated(steps: int, likeness: float) -> None:
    rng = np.random.default_rng([steps, int(100 * likeness)])
    alpha = 0.05
    wrong = sum(bool(trend(row).falls(alpha)) for row in noise(rng, RUNS, steps, likeness, heavy=steps == 100))
    assert wrong / RUNS <= alpha + 3 * np.sqrt(alpha * (1 - alpha) / RUNS)


def test_a_verdict_is_reached_often_where_steps_suffice() -> None:
    rng = np.random.default_rng(3)
    decided = [trend(row).p is not None for row in noise(rng, 200, 500, 0.5)]
    assert np.mean(decided) > 0.95
    falling = 3 + np.exp(-np.arange(200) / 80) + 0.1 * noise(rng, 200, 200, 0.3)
    assert np.mean([bool(trend(row).falls(ALPHA)) for row in falling]) > 0.95


@pytest.mark.parametrize("count", [5, 6])
def test_the_probability_is_that_of_all_orders(count: int) -> None:
    orders = [np.array(order, float) for order in permutations(range(count))]
    found = np.array([probability(order) for order in orders])
    rising = np.array([sum(b > a for at, a in enumerate(order) for b in order[at + 1 :]) for order in orders])
    assert found == pytest.approx([np.mean(rising <= each) for each in rising])


@given(st.lists(st.floats(-1e6, 1e6), min_size=5, max_size=60))
def test_any_series_has_a_verdict_or_the_steps_that_it_needs(values: list[float]) -> None:
    found = trend(values)
    assert (found.p is None) == (found.needed > len(values))
    if found.p is not None:
        assert 0 < found.p <= 1


@pytest.mark.parametrize("heavy", [False, True])
def test_nine_of_ten_bands_hold_what_the_full_run_takes(heavy: bool) -> None:
    rng = np.random.default_rng(int(heavy))
    held = 0
    for row in noise(rng, 600, 200, 0.4, heavy):
        seconds = 1.0 + 0.05 * row
        low, _, high = forecast(profile(seconds.tolist()), 1_000_000).hours
        held += low <= 1_000_000 / 3600 <= high
    assert held / 600 > 0.86


def good() -> Canary:
    rng = np.random.default_rng(7)
    losses = 3 + 2 * np.exp(-np.arange(200) / 50) + 0.1 * rng.normal(size=200)
    seconds = 0.1 + 0.002 * rng.random(200)
    seconds[0] = 20.0
    return Canary(losses.tolist(), seconds.tolist(), [1e9] * 200, items=64, start_up=30)


def test_a_good_run_passes_and_tells_time_and_cost_of_the_full_one() -> None:
    report = check_canary(good(), PLANNED)
    assert report.passed, str(report)
    numbers = report.of("profile").finding.numbers
    assert numbers["hours"] == sorted(numbers["hours"])
    assert numbers["hours"][1] == pytest.approx((50 + 100_000 * 0.101) / 3600, rel=0.01)
    assert numbers["cost"][1] == pytest.approx(12 * numbers["hours"][1])
    assert json.loads(report.to_json())["checks"][0]["rung"] == "canary"
    whole = full_run(good(), PLANNED)
    assert whole is not None
    assert list(whole.hours) == numbers["hours"]


def flat() -> list[float]:
    return (3 + 0.1 * np.random.default_rng(1).normal(size=200)).tolist()


def with_stall() -> list[float]:
    seconds = list(good().seconds)
    seconds[77] = 5.0
    return seconds


WRONG: dict[str, tuple[Canary, Planned, set[str]]] = {
    "no progress": (replace(good(), losses=flat()), PLANNED, {"falls"}),
    "a rising loss": (replace(good(), losses=good().losses[::-1]), PLANNED, {"falls"}),
    "a loss that is not finite": (replace(good(), losses=[*good().losses[:-1], float("nan")]), PLANNED, {"finite"}),
    "no losses": (replace(good(), losses=[]), PLANNED, {"finite"}),
    "half the throughput": (good(), replace(PLANNED, items_per_second=1280), {"throughput"}),
    "a full memory": (replace(good(), memory=[7.8e9] * 200), PLANNED, {"memory"}),
    "a memory that fills": (replace(good(), memory=[1e9 + 1e6 * each for each in range(200)]), PLANNED, {"memory"}),
    "a stall": (replace(good(), seconds=with_stall()), PLANNED, {"stalls"}),
    "too long": (good(), replace(PLANNED, max_hours=1), {"profile"}),
    "too dear": (good(), replace(PLANNED, max_cost=10), {"profile"}),
}


@pytest.mark.parametrize("what", WRONG)
def test_what_is_wrong_is_named(what: str) -> None:
    run, planned, expected = WRONG[what]
    report = check_canary(run, planned)
    assert set(report.named("failed")) == expected, str(report)
    assert not report.passed


def test_a_hiccup_of_steps_of_a_millisecond_is_no_stall() -> None:
    quick = [each / 1000 for each in with_stall()]
    assert check_canary(replace(good(), seconds=quick), PLANNED).of("stalls").status == "ok"
    quick[50] = 0.3
    assert check_canary(replace(good(), seconds=quick), PLANNED).of("stalls").status == "failed"


def test_a_pause_that_is_told_is_no_stall() -> None:
    assert check_canary(replace(good(), seconds=with_stall(), pauses={77}), PLANNED).passed


def test_a_run_that_is_too_short_says_how_many_steps_it_needs() -> None:
    run = good()
    report = check_canary(Canary(run.losses[:12], run.seconds[:12]), PLANNED)
    assert report.named("unknown") == ["falls", "profile"]
    assert report.of("falls").finding.numbers["needed"] == 40
    assert "40 steps" in report.of("falls").finding.hint


def test_it_needs_no_torch() -> None:
    code = "import sys; from muster.train.preflight import check_canary; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
