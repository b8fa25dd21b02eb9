"""A smoothed curve is the moving average over every point, whichever part of it is looked at."""

from __future__ import annotations

import math
from random import Random

import numpy as np
import pytest

from metric_kit import MetricStore, column
from muster.core.errors import Invalid


def average(values: list[float], weight: float) -> list[float]:
    """One value after the other, as TensorBoard's page does it."""
    found, total, whole = [], 0.0, 0.0
    for value in values:
        if math.isfinite(value):
            total, whole = weight * total + (1 - weight) * value, weight * whole + 1 - weight
        found.append(total / whole if math.isfinite(value) else math.nan)
    return found


@pytest.mark.parametrize("weight", [0.3, 0.9, 0.999])
def test_smoothing_is_over_all_points(lite: MetricStore, weight: float) -> None:
    random = Random(1)
    values = [random.gauss(5, 1) if step % 97 else math.nan for step in range(50_000)]
    values[20_000] = math.inf
    lite.add("r", 1, 0, loss=column([(step, 10.0 + step, value) for step, value in enumerate(values)]))
    lite.metrics.compact("r")
    expected = average(values, weight)
    for start, stop in ((None, 2000), (30_000, 31_000), (49_999, None)):
        for axis, moved in (("step", 0), ("time", 10)):
            first, last = (None if start is None else start + moved), (None if stop is None else stop + moved)
            found = lite.metrics.curve("r", "loss", start=first, stop=last, axis=axis, smooth=weight)  # type: ignore[arg-type]
            assert found.raw
            assert found.smooth is not None
            np.testing.assert_allclose(found.smooth, expected[start or 0 : stop], rtol=1e-6)
    whole = lite.metrics.curve("r", "loss", buckets=100, smooth=weight)
    assert whole.smooth is not None
    assert len(whole.smooth) == len(whole.buckets) == 100
    at = 0
    for count, value in zip(whole.buckets.count.tolist(), whole.smooth.tolist(), strict=True):
        assert value == pytest.approx(np.nanmean(expected[at : at + count]), rel=0.01)
        at += count


def test_smoothing_goes_on_over_a_restart_and_leaves_out_what_it_went_back_behind(lite: MetricStore) -> None:
    lite.add("r", 1, 0, loss=column([(step, step, 1.0 if step < 50 else 100.0) for step in range(60)]))
    lite.add("r", 2, 0, loss=column([(step, 100 + step, 1.0) for step in range(50, 80)]))
    found = lite.metrics.curve("r", "loss", smooth=0.9)
    assert found.smooth is not None
    assert found.smooth.tolist() == pytest.approx([1.0] * 80)
    with pytest.raises(Invalid):
        lite.metrics.curve("r", "loss", smooth=0.9, superseded=True)
    empty = lite.metrics.curve("r", "loss", start=1000, smooth=0.9)
    assert empty.smooth is not None
    assert len(empty.smooth) == 0
    assert lite.metrics.curve("r", "loss").smooth is None
