"""Series beside each other: a row for each step of each attempt, whole or slice by slice."""

from __future__ import annotations

import math
from random import Random

import numpy as np
import pytest

from metric_kit import MetricStore, column, curve_of
from muster.track.metrics.table import joined, step_ranges

NAN = math.nan


def fill(metric_store: MetricStore) -> None:
    metric_store.add("r", 1, 0, loss=curve_of(range(0, 100)), val=curve_of(range(0, 100, 10), 3.0))
    metric_store.metrics.compact("r")
    metric_store.add("r", 1, 0, loss=curve_of(range(100, 120)), lr=curve_of([110]))
    metric_store.add("r", 2, 0, loss=curve_of(range(60, 130), 2.0), val=column([(70, 1.0, NAN)]))
    metric_store.add("r", 1, 0, **{"system/cpu": curve_of(range(500))})


def test_rows_stand_by_attempt_and_step_with_what_is_absent_marked(metric_shop: MetricStore) -> None:
    fill(metric_shop)
    table = metric_shop.metrics.table("r")
    assert table.names == ("loss", "lr", "val")
    assert table.step.tolist() == list(range(130))
    assert table.attempt.tolist() == [1] * 60 + [2] * 70
    assert table.values[30].tolist()[::2] == [30.0, 90.0]
    assert table.given[30].tolist() == [True, False, True]
    assert table.given[31].tolist() == [True, False, False]
    assert math.isnan(table.values[70, 2])
    assert table.given[70, 2]  # a NaN that was reported
    assert not table.given[110, 1]  # of an attempt that was superseded there
    assert table.time[70] == 1.0
    old = metric_shop.metrics.table("r", ["lr", "loss"], superseded=True, start=100, stop=115)
    assert (old.names, old.step.tolist()) == (("lr", "loss"), [*range(100, 115), *range(100, 115)])
    assert old.values[10].tolist() == [110.0, 110.0]
    one = metric_shop.metrics.table("r", ["val", "none"], attempt=1)
    assert (one.step.tolist(), one.given[:, 1].any()) == (list(range(0, 100, 10)), False)
    assert len(metric_shop.metrics.table("nobody")) == 0
    assert metric_shop.metrics.table("nobody", ["a", "b"]).values.shape == (0, 2)


@pytest.mark.parametrize("cells", [1, 7, 100, 10**6])
def test_slices_are_the_table(lite: MetricStore, cells: int) -> None:
    fill(lite)
    whole = lite.metrics.table("r")
    slices = list(lite.metrics.tables("r", cells=cells))
    if cells < 10**6:
        assert len(slices) > 2
    parts = joined(whole.names, slices)
    for name in ("step", "attempt", "time", "values", "given"):
        np.testing.assert_equal(getattr(parts, name), getattr(whole, name))


def test_repeated_steps_are_rows_of_their_own(lite: MetricStore) -> None:
    lite.add("r", 1, 0, a=column([(1, 1.0, 1.0), (2, 2.0, 2.0), (1, 3.0, 3.0)]), b=column([(1, 0.5, 9.0)]))
    table = lite.metrics.table("r")
    assert table.step.tolist() == [1, 1, 2]
    assert table.values[:, 0].tolist() == [1.0, 3.0, 2.0]
    assert table.given[:, 1].tolist() == [True, False, False]
    assert table.time.tolist() == [0.5, 3.0, 2.0]


def test_a_gap_and_a_shuffle_lose_nothing(lite: MetricStore) -> None:
    random = Random(4)
    steps = [*range(2_000), *range(10**9, 10**9 + 500)]
    random.shuffle(steps)
    for at in range(0, len(steps), 600):
        lite.add("r", 1, 0, loss=curve_of(steps[at : at + 600]))
        lite.metrics._compaction.compact("r")
    for cells in (50, 1_000, 10**7):
        found = [step for part in lite.metrics.tables("r", cells=cells) for step in part.step.tolist()]
        assert found == sorted(steps)


def test_step_ranges_cover_everything_once() -> None:
    for extents, rows in (([(0, 99, 100)], 10), ([(0, 9, 10), (5, 50, 7), (-5, 3, 9)], 4), ([(7, 7, 500)], 3), ([], 5)):
        found = step_ranges(extents, rows)
        assert (found[0][0], found[-1][1]) == (None, None)
        assert [high for _, high in found[:-1]] == [low for low, _ in found[1:]]
    assert len(step_ranges([(0, 99, 100)], 10)) >= 10
