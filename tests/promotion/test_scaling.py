"""Scaling from measured throughputs, and the scale at which adding devices stops paying."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from muster.core.scaling import scaling

MEASURED = st.dictionaries(st.integers(1, 4096), st.lists(st.floats(1e-3, 1e9), min_size=1, max_size=3), min_size=1)


def test_the_knee_is_where_added_devices_bring_less_than_half_of_one():
    found = scaling({1: [100.0], 2: [180.0], 4: [240.0]})
    assert found is not None
    assert found.text() == "2 devices 1.8×, 4 devices 2.4×: adding stops paying at 4"
    assert [round(one.efficiency, 3) for one in found.points] == [1.0, 0.9, 0.6]
    assert [round(one.gain, 3) for one in found.points] == [1.0, 0.8, 0.3]


@given(st.sets(st.integers(1, 4096), min_size=1, max_size=8), st.floats(1e-3, 1e6))
def test_what_scales_perfectly_has_no_knee(devices: set[int], each: float):
    found = scaling({one: [one * each] for one in devices})
    assert found is not None
    assert found.stops_at is None
    assert all(math.isclose(one.efficiency, 1.0, rel_tol=1e-6) for one in found.points)


@given(MEASURED, st.floats(0.01, 100))
def test_a_unit_changes_nothing(measured: dict[int, list[float]], unit: float):
    found, other = scaling(measured), scaling({n: [one * unit for one in values] for n, values in measured.items()})
    assert found is not None
    assert other is not None
    for one, two in zip(found.points, other.points, strict=True):
        assert math.isclose(one.speedup, two.speedup, rel_tol=1e-6)
        assert math.isclose(one.efficiency, two.efficiency, rel_tol=1e-6)
    assert found.points[0].speedup == 1.0
    assert [one.devices for one in found.points] == sorted(measured)


def test_what_is_no_throughput_does_not_count():
    assert scaling({}) is None
    assert scaling({1: [math.nan], 2: [0.0], 4: [-1.0], 0: [3.0]}) is None
    found = scaling({1: [math.inf, 10.0, 10.0], 8: [70.0]})
    assert found is not None
    assert found.at(2) == found.points[1]
    assert found.at(9) is None
    alone = scaling({1: [3.0]})
    assert alone is not None
    assert alone.text() == "measured at 1 device alone"
