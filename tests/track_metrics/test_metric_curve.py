"""A curve is honest: its buckets stand for exactly the points that were reported and still stand, in their order."""

from __future__ import annotations

import math
from itertools import pairwise
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metric_kit import MetricStore, Point, column, curve_of, metric_store
from muster.core.errors import Invalid
from muster.track.metrics.shapes import Axis, Curve

NAN, INF = math.nan, math.inf
Reported = tuple[int, int, float, float]  # attempt, step, time, value


def check_honest(curve: Curve, expected: list[Reported], buckets: int, by_attempt: bool = False) -> None:
    """`expected` in the order of arrival; the curve's buckets are consecutive groups of them along the axis."""
    place = 1 if curve.axis == "step" else 2
    ordered = sorted(expected, key=lambda point: (point[0] if by_attempt else 0, point[place]))
    found = curve.buckets
    assert len(found) == len(curve.attempt) <= buckets
    assert int(found.count.sum()) == len(ordered)
    if len(ordered) <= buckets:
        assert curve.raw
    at = 0
    for bucket, count in enumerate(found.count.tolist()):
        points = ordered[at : at + count]
        at += count
        values = [point[3] for point in points]
        real = [value for value in values if not math.isnan(value)]
        assert (found.first_step[bucket], found.last_step[bucket]) == extent(points, 1)
        assert (found.first_time[bucket], found.last_time[bucket]) == extent(points, 2)
        assert found.nans[bucket] == len(values) - len(real)
        np.testing.assert_equal([found.low[bucket], found.high[bucket]], [min(real), max(real)] if real else [NAN, NAN])
        if real and all(map(math.isfinite, real)):
            assert found.mean[bucket] == pytest.approx(sum(real) / len(real), rel=1e-9, abs=1e-9)
        assert curve.attempt[bucket] in {point[0] for point in points}


def extent(points: list[Reported], place: int) -> tuple[float, float]:
    return min(point[place] for point in points), max(point[place] for point in points)


def grow(metric_store: MetricStore, attempt: int, points: list[Point], cuts: list[int]) -> list[Reported]:
    """Appends in batches; compacts after every second one, so that tail and blocks both have a part."""
    edges = [0, *sorted({cut for cut in cuts if 0 < cut < len(points)}), len(points)]
    for turn, (begin, end) in enumerate(pairwise(edges)):
        if begin < end:
            metric_store.add("r", attempt, 0, loss=column(points[begin:end]))
        if turn % 2:
            metric_store.metrics._compaction.compact("r")
    return [(attempt, *point) for point in points]


@pytest.mark.parametrize("axis", ["step", "time"])
def test_a_long_curve_zoomed_and_whole(metric_shop: MetricStore, axis: Axis) -> None:
    random = Random(1)
    points = [(3 * i, 1000.0 + i / 8, NAN if i % 997 == 0 else random.gauss(0, 1)) for i in range(60_000)]
    points[40_000:] = [(step + 10**9, time, value) for step, time, value in points[40_000:]]  # a gap
    expected = grow(metric_shop, 1, points, [100, 7_000, 7_100, 30_000, 30_001, 55_000])
    place = 1 if axis == "step" else 2
    low, high = points[0][place - 1], points[-1][place - 1] + 1
    windows = [(None, None), (points[9_000][place - 1], points[52_345][place - 1]), (low, high), (high, None)]
    windows += [
        (points[500][place - 1], points[900][place - 1]),
        (points[39_990][place - 1], points[40_010][place - 1]),
    ]
    for start, stop in windows:
        for buckets in (1, 7, 500, 2000):
            curve = metric_shop.metrics.curve("r", "loss", buckets=buckets, start=start, stop=stop, axis=axis)
            inside = [
                point
                for point in expected
                if (start is None or point[place] >= start) and (stop is None or point[place] < stop)
            ]
            check_honest(curve, inside, buckets)
            if len(inside) > 60 * buckets:
                assert len(curve.buckets) >= 0.9 * buckets  # the resolution that was asked for


def test_a_restart_supersedes_from_its_first_step_in_every_curve(metric_shop: MetricStore) -> None:
    metric_store = metric_shop
    metric_store.add("r", 1, 0, loss=curve_of(range(1, 601)), val=curve_of([100, 300, 500]))
    metric_store.add("r", 1, 1, time=curve_of(range(1, 601)))
    metric_store.add("r", 1, 0, **{"system/cpu": curve_of(range(900))})
    metric_store.metrics.compact("r")
    metric_store.add("r", 2, 0, loss=curve_of(range(401, 700), 2.0))
    metric_store.add("r", 2, 0, **{"system/cpu": curve_of(range(50))})
    for again in (False, True):
        if again:
            metric_store.metrics.compact("r")
        curve = metric_store.metrics.curve("r", "loss")
        assert curve.raw
        assert curve.buckets.first_step.tolist() == list(range(1, 700))
        assert curve.attempt.tolist() == [1] * 400 + [2] * 299
        assert curve.buckets.last[400] == 802.0
        bands = [(b.attempt, b.first_step, b.last_step, b.superseded_from) for b in curve.bands]
        assert bands == [(1, 1, 400, 401), (2, 401, 699, None)]
        assert metric_store.metrics.curve("r", "val").buckets.first_step.tolist() == [
            100,
            300,
        ]  # not reported again yet
        assert metric_store.metrics.points("r", "time", rank=1).step.tolist() == list(range(1, 401))
        assert len(metric_store.metrics.points("r", "system/cpu")) == 950  # seconds of each attempt: nothing goes back
        old = metric_store.metrics.curve("r", "loss", attempt=1)
        assert old.buckets.last_step.tolist() == list(range(1, 601))
        both = metric_store.metrics.curve("r", "loss", superseded=True)
        assert both.buckets.last_step.tolist() == [*range(1, 601), *range(401, 700)]
        assert both.attempt.tolist() == [1] * 600 + [2] * 299


def test_a_third_attempt_may_go_back_behind_the_second(lite: MetricStore) -> None:
    for attempt, steps in ((1, range(100)), (2, range(50, 80)), (3, range(20, 30)), (4, range(25, 27))):
        lite.add("r", attempt, 0, loss=curve_of(steps, attempt))
    points = lite.metrics.points("r", "loss")
    assert points.step.tolist() == [*range(20), *range(20, 25), 25, 26]
    assert points.attempt.tolist() == [1] * 20 + [3] * 5 + [4] * 2
    bands = {b.attempt: b.superseded_from for b in lite.metrics.curve("r", "loss").bands}
    assert bands == {1: 20, 2: 20, 3: 25, 4: None}


def test_the_lowest_rank_that_reports_says_where_an_attempt_began(lite: MetricStore) -> None:
    """The last stage of a pipeline reports the loss, and a rank that counts something else from 0 changes nothing."""
    lite.add("r", 1, 7, loss=curve_of(range(10)))
    lite.add("r", 2, 7, loss=curve_of(range(5, 10)))
    assert lite.metrics.points("r", "loss").attempt.tolist() == [1] * 5 + [2] * 5
    lite.add("r", 2, 8, other=curve_of([0]))
    assert lite.metrics.points("r", "loss").attempt.tolist() == [1] * 5 + [2] * 5
    lite.add("r", 2, 3, first=curve_of([8]))
    assert sorted(lite.metrics.points("r", "loss").attempt.tolist()) == [1] * 8 + [2] * 5


def test_more_attempts_than_buckets(lite: MetricStore) -> None:
    for attempt in range(1, 31):
        lite.add("r", attempt, 0, loss=curve_of(range(10 * attempt, 10 * attempt + 10), attempt))
    expected = [(s // 10, s, 1000.0 + s, float(s // 10 * s)) for s in range(10, 310)]
    for buckets in (1, 5, 29, 30, 31, 100, 299, 300):
        curve = lite.metrics.curve("r", "loss", buckets=buckets)
        check_honest(curve, expected, buckets)
        if buckets > 60:
            assert all(
                a // 10 == b // 10 for a, b in zip(curve.buckets.first_step, curve.buckets.last_step, strict=True)
            )


def test_values_past_what_a_sum_can_hold_have_a_mean(lite: MetricStore) -> None:
    lite.add("r", 1, 0, loss=column([(i, float(i), 1.7e308) for i in range(5_000)]))
    lite.metrics.compact()
    curve = lite.metrics.curve("r", "loss", buckets=3)
    assert curve.buckets.mean.tolist() == [1.7e308] * 3


def test_what_is_not_there_is_empty_and_too_much_is_refused(lite: MetricStore) -> None:
    curve = lite.metrics.curve("none", "loss")
    assert (len(curve.buckets), curve.points, curve.bands, len(lite.metrics.points("none", "loss"))) == (0, 0, [], 0)
    for buckets in (0, 10**9):
        with pytest.raises(Invalid, match="buckets were asked for"):
            lite.metrics.curve("r", "loss", buckets=buckets)


POINTS = st.lists(
    st.tuples(
        st.one_of(st.integers(0, 60), st.integers(-(2**62), 2**62)),
        st.floats(0, 1e6),
        st.one_of(st.floats(-1e6, 1e6), st.sampled_from([NAN, INF, -INF])),
    ),
    min_size=1,
    max_size=400,
)


@settings(max_examples=25)
@given(
    attempts=st.lists(st.tuples(POINTS, st.lists(st.integers(1, 399), max_size=4)), min_size=1, max_size=3),
    buckets=st.integers(1, 60),
    window=st.tuples(st.one_of(st.none(), st.integers(0, 60)), st.one_of(st.none(), st.integers(0, 60))),
    axis=st.sampled_from(["step", "time"]),
    superseded=st.booleans(),
)
def test_any_points_in_any_order(tmp_path_factory, attempts, buckets, window, axis, superseded) -> None:
    with metric_store(f"sqlite:///{tmp_path_factory.mktemp('curve')}/m.db") as made:
        reported: list[Reported] = []
        for number, (points, cuts) in enumerate(attempts, start=1):
            reported += grow(made, number, points, cuts)
        firsts = {number: min(point[0] for point in points) for number, (points, _) in enumerate(attempts, start=1)}
        start, stop = window
        place = 1 if axis == "step" else 2
        expected = [
            point
            for point in reported
            if (start is None or point[place] >= start)
            and (stop is None or point[place] < stop)
            and (superseded or all(point[1] < first for other, first in firsts.items() if other > point[0]))
        ]
        which = {"start": start, "stop": stop, "axis": axis, "superseded": superseded}
        check_honest(made.metrics.curve("r", "loss", buckets=buckets, **which), expected, buckets, superseded)
        found = made.metrics.points("r", "loss", **which)
        ordered = sorted(expected, key=lambda point: (point[0] if superseded else 0, point[place]))
        np.testing.assert_equal(found.value, [point[3] for point in ordered])
        np.testing.assert_equal(found.attempt, [point[0] for point in ordered])
