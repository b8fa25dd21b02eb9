"""What is appended is kept to the bit and summed up right, whatever it is."""

from __future__ import annotations

import math
from array import array

import pytest

from metric_kit import MetricStore, column, curve_of, expected_points
from muster.core.errors import Invalid
from muster.store.base import Column
from muster.track.metrics.shapes import Summary

NAN, INF = math.nan, math.inf


def summary(metric_store: MetricStore, name: str = "loss", run: str = "r") -> Summary:
    return metric_store.metrics.summaries([run])[run][name]


def test_the_last_value_is_that_of_the_highest_attempt_step_and_time(metric_shop: MetricStore) -> None:
    metric_store = metric_shop
    metric_store.add("r", 1, 0, loss=column([(5, 10.0, 1.0), (9, 11.0, 2.0), (7, 12.0, 3.0)]))
    assert summary(metric_store) == Summary(3, 0, 2.0, 9, 11.0, 1, 1.0, 5, 3.0, 7)
    metric_store.add("r", 2, 0, loss=column([(6, 20.0, 0.5)]))  # a restart that went back
    assert summary(metric_store) == Summary(4, 0, 0.5, 6, 20.0, 2, 0.5, 6, 3.0, 7)
    metric_store.add("r", 1, 0, loss=column([(99, 30.0, 8.0)]))  # what arrives late of an attempt that is over
    assert summary(metric_store) == Summary(5, 0, 0.5, 6, 20.0, 2, 0.5, 6, 8.0, 99)
    metric_store.add("r", 2, 0, loss=column([(6, 19.0, 4.0), (6, 21.0, NAN), (6, 20.5, 4.5)]))
    last = summary(metric_store)
    assert math.isnan(last.last)
    assert (last.last_time, last.points, last.nans) == (21.0, 8, 1)


def test_of_values_at_one_step_and_time_the_greatest_is_the_last(metric_shop: MetricStore) -> None:
    metric_store = metric_shop
    tied = [2.0, NAN, 3.0, 1.0]
    steps, times = array("q", [4] * 5), array("d", [9.0, 10.0, 10.0, 10.0, 10.0])
    together = {"up": [9.0, *tied], "down": [9.0, *[-one for one in tied]]}
    metric_store.add("r", 1, 0, **{name: Column(steps, times, array("d", values)) for name, values in together.items()})
    for value in tied:
        for name, sign in (("one/up", 1), ("one/down", -1)):
            metric_store.add("r", 1, 0, **{name: column([(4, 10.0, sign * value)])})
    metric_store.add("r", 1, 0, **{"one/up": column([(4, 9.0, 7.0)])})
    for name in ("up", "one/up"):
        assert (summary(metric_store, name).last, summary(metric_store, name).last_time) == (3.0, 10.0)
    for name in ("down", "one/down"):  # a NaN counts as 0
        assert math.isnan(summary(metric_store, name).last)


def test_nan_and_infinities_have_their_place_in_summaries(metric_shop: MetricStore) -> None:
    metric_store = metric_shop
    metric_store.add("r", 1, 0, loss=column([(1, 1.0, NAN), (2, 2.0, NAN)]))
    first = summary(metric_store)
    assert (math.isnan(first.last), first.low, first.low_step, first.high, first.nans) == (True, None, None, None, 2)
    metric_store.add("r", 1, 0, loss=column([(3, 3.0, INF), (4, 4.0, 7.0), (5, 5.0, -INF)]))
    assert summary(metric_store) == Summary(5, 2, -INF, 5, 5.0, 1, -INF, 5, INF, 3)
    metric_store.add("r", 1, 0, loss=column([(6, 6.0, NAN)]))
    assert (summary(metric_store).low, summary(metric_store).high) == (-INF, INF)


def test_every_kind_of_point_is_kept_in_tail_and_blocks(metric_shop: MetricStore) -> None:
    points = [
        (2**63 - 1, 5.0, 1.0), (-(2**63), 4.0, -0.0), (0, -1e300, NAN), (0, 3.0, INF), (10**9, 3.0, -INF),
        (7, 3.0, 5e-324), (7, 3.0, 1.7976931348623157e308), (7, 2.0, 0.1),
    ]  # fmt: skip
    metric_store = metric_shop
    metric_store.add("r", 1, 0, loss=column(points))
    in_order = sorted(expected_points(1, points), key=lambda point: point[1])
    assert metric_store.seen("r", "loss") == in_order
    assert metric_store.metrics.compact() == len(points)
    assert metric_store.count("metric_tail", "r") == 0
    assert metric_store.seen("r", "loss") == in_order


def test_ten_thousand_metrics_in_one_step_are_one_row(metric_shop: MetricStore) -> None:
    metric_store = metric_shop
    wide = {f"layer.{i}/norm": column([(3, 1.0, i / 7)]) for i in range(10_000)}
    metric_store.add("r", 1, 0, **wide)
    assert metric_store.count("metric_tail", "r") == 1
    assert len(metric_store.metrics.series("r")) == 10_000
    assert summary(metric_store, "layer.9999/norm").last == 9999 / 7
    assert metric_store.seen("r", "layer.123/norm") == expected_points(1, [(3, 1.0, 123 / 7)])
    metric_store.metrics.compact("r")
    assert metric_store.seen("r", "layer.123/norm") == expected_points(1, [(3, 1.0, 123 / 7)])


def test_names_that_share_nothing_go_together(lite: MetricStore) -> None:
    lite.add("r", 1, 0, a=curve_of(range(3)), b=curve_of(range(5, 7)), c=curve_of(range(3), 2.0), empty=curve_none())
    assert [one.name for one in lite.metrics.series("r")] == ["a", "b", "c"]
    assert lite.seen("r", "b") == expected_points(1, [(5, 1005.0, 5.0), (6, 1006.0, 6.0)])
    assert lite.seen("r", "c") == expected_points(1, [(i, 1000.0 + i, 2.0 * i) for i in range(3)])
    assert lite.seen("r", "empty") == []


def test_series_of_the_run_come_first(lite: MetricStore) -> None:
    lite.add("r", 1, 1, loss=curve_of([1]), late=curve_of([1]))
    lite.add("r", 1, 0, **{"loss": curve_of([1]), "system/cpu": curve_of([1])})
    assert [(one.name, one.rank) for one in lite.metrics.series("r")] == [
        ("loss", 0), ("late", 1), ("system/cpu", 0), ("loss", 1),
    ]  # fmt: skip
    assert [(one.name, one.rank) for one in lite.metrics.series("r", rank=1)] == [("late", 1), ("loss", 1)]


@pytest.mark.parametrize(
    ("name", "bad", "match"),
    [
        ("x" * 10_000, curve_of([1]), "10000 characters"),
        ("", curve_of([1]), "0 characters"),
        ("nul\0", curve_of([1]), "NUL"),
        ("half\ud800", curve_of([1]), "surrogate"),
        ("loss", column([(1, NAN, 1.0)]), "not finite"),
        ("loss", Column(array("q", [1, 2]), array("d", [1.0]), array("d", [1.0])), "differ in number"),
    ],
)
def test_what_cannot_be_kept_is_refused_before_anything_is_written(
    lite: MetricStore, name: str, bad: Column, match: str
) -> None:
    with pytest.raises(Invalid, match=match):
        lite.add("r", 1, 0, **{"good": curve_of([1]), name: bad})
    assert lite.metrics.series("r") == []


def test_a_rank_or_attempt_out_of_range_is_refused(lite: MetricStore) -> None:
    for attempt, rank in ((-1, 0), (1, 2**31), (2**31, 0)):
        with pytest.raises(Invalid, match="both must be"):
            lite.add("r", attempt, rank, loss=curve_of([1]))


def curve_none() -> Column:
    return Column(array("q"), array("d"), array("d"))
