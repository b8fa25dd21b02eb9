"""The statistics, against SciPy's."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy  # its parts are loaded where they are first used, not in every process that collects the tests
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from muster.core.significance import compare_groups, estimate, holm, incomplete_beta, t_quantile, t_two_sided, welch

GROUPS = st.lists(st.floats(-1e3, 1e3).map(lambda x: round(x, 3)), min_size=2, max_size=12)


@settings(max_examples=40)
@given(st.floats(0.05, 500), st.floats(0.05, 500), st.floats(0, 1))
def test_the_incomplete_beta_function(a: float, b: float, x: float) -> None:
    assert incomplete_beta(a, b, x) == pytest.approx(scipy.special.betainc(a, b, x), rel=1e-8, abs=1e-12)


@settings(max_examples=40)
@given(st.floats(-60, 60), st.floats(0.5, 400))
def test_students_distribution(t: float, freedom: float) -> None:
    assert t_two_sided(t, freedom) == pytest.approx(2 * scipy.stats.t.sf(abs(t), freedom), rel=1e-7, abs=1e-14)


@settings(max_examples=40)
@given(st.sampled_from([0.9, 0.95, 0.975, 0.995]), st.floats(0.7, 400))
def test_its_quantiles(chance: float, freedom: float) -> None:
    assert t_quantile(chance, freedom) == pytest.approx(scipy.stats.t.ppf(chance, freedom), rel=1e-8)


@settings(max_examples=40)
@given(GROUPS)
def test_means_and_intervals(values: list[float]) -> None:
    found = estimate(values)
    assert found.mean == pytest.approx(np.mean(values), rel=1e-9, abs=1e-9)
    assert found.deviation == pytest.approx(np.std(values, ddof=1), rel=1e-9, abs=1e-9)
    assert found.deviation is not None
    if found.deviation > 1e-9:
        low, high = scipy.stats.t.interval(0.95, len(values) - 1, np.mean(values), scipy.stats.sem(values))
        assert (found.low, found.high) == (
            pytest.approx(low, rel=1e-7, abs=1e-7),
            pytest.approx(high, rel=1e-7, abs=1e-7),
        )


@settings(max_examples=40)
@given(GROUPS, GROUPS)
def test_welch(first: list[float], second: list[float]) -> None:
    assume(min(np.std(first), np.std(second)) > 1e-9)
    found = welch(first, second)
    peer = scipy.stats.ttest_ind(first, second, equal_var=False)
    assert found.t == pytest.approx(peer.statistic, rel=1e-6, abs=1e-9)
    assert found.p == pytest.approx(peer.pvalue, rel=1e-5, abs=1e-12)
    interval = peer.confidence_interval(0.95)
    assert found.low == pytest.approx(interval.low, rel=1e-6, abs=1e-6)
    assert found.high == pytest.approx(interval.high, rel=1e-6, abs=1e-6)


ANY = st.one_of(
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from([1.7e308, -1.7e308, 1e200, 1e-200, 5e-324, -5e-324, 0.0, 1.0]),
)
ANY_GROUP = st.lists(ANY, max_size=6)


def test_equal_values_do_not_deviate() -> None:
    found = estimate([6.814172424030507e16] * 3)
    assert (found.mean, found.deviation) == (6.814172424030507e16, 0.0)


@settings(max_examples=300)
@given(ANY_GROUP, ANY_GROUP)
def test_values_of_any_size_give_finite_numbers(first: list[float], second: list[float]) -> None:
    found = estimate(first)
    if first:
        assert found.mean is not None
        assert min(first) <= found.mean <= max(first)
    if len(first) > 1:
        assert found.low is not None
        assert found.high is not None
        assert found.low <= found.mean <= found.high
    for one in compare_groups([first, second]):
        numbers = (one.difference, one.low, one.high, one.t, one.freedom, one.p, one.adjusted)
        assert all(number is None or math.isfinite(number) for number in numbers)
        assert one.p is None or 0 <= one.p <= 1
        assert one.difference is None or one.low is None or one.low <= one.difference <= one.high


@settings(max_examples=40)
@given(GROUPS, GROUPS, st.sampled_from([-960, -500, 900]))
def test_a_test_does_not_depend_on_the_unit(first: list[float], second: list[float], power: int) -> None:
    """Multiplied by a power of two, which is exact, the same values have the same t and p."""
    assume(min(np.std(first), np.std(second)) > 1e-9)
    unit = 2.0**power
    plain, scaled = welch(first, second), welch([v * unit for v in first], [v * unit for v in second])
    assert (scaled.t, scaled.freedom, scaled.p) == (plain.t, plain.freedom, plain.p)
    assert plain.difference is not None
    assert scaled.difference == plain.difference * unit


@settings(max_examples=40)
@given(st.lists(st.floats(0, 1), max_size=8))
def test_holm(p_values: list[float]) -> None:
    adjusted = holm(p_values)
    assert all(p <= q <= 1 for p, q in zip(p_values, adjusted, strict=True))
    for level in (0.01, 0.05, 0.2):
        # The procedure itself: from the smallest on, until one is too large.
        rejected = 0
        for rank, p in enumerate(sorted(p_values)):
            if p * (len(p_values) - rank) > level:
                break
            rejected += 1
        assert sum(q <= level for q in adjusted) == rejected


def test_what_can_not_be_tested_is_said() -> None:
    few, one, flat, other = (
        compare_groups([[1.0, 2.0], [3.0]])[0],
        estimate([4.0]),
        welch([1, 1], [2, 2]),
        welch([], [1]),
    )
    assert (few.p, few.difference, "2 runs" in few.why) == (None, -1.5, True)
    assert (one.mean, one.low) == (4.0, None)
    assert (flat.p, "varies" in flat.why) == (None, True)
    assert (other.p, other.difference) == (None, None)
    assert "fewer than 5" in welch([1, 2], [2, 4]).why


def test_many_groups_are_tested_against_the_best() -> None:
    groups = [[float(i), i + 1.0, i + 0.5] for i in range(10)]
    found = compare_groups(groups, best=3)
    assert [one.first for one in found] == [3] * 9
    assert len(compare_groups(groups[:4])) == 6
    assert all(one.adjusted is not None and one.p is not None and one.adjusted >= one.p for one in found)
    assert not any(math.isnan(one.adjusted or 0) for one in found)
