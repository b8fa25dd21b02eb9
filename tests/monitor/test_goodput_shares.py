"""Sums of the ledger: any grouping adds up, and the three ratios are what they are said to be."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.monitor.goodput_shares import Held, totals
from muster.monitor.time_ledger import CLASSES, SECOND

PARTS = st.dictionaries(st.sampled_from(CLASSES), st.integers(0, 86_400 * SECOND), max_size=6)
STEPS = st.tuples(st.integers(0, 1000), st.integers(0, 1000)).map(sorted)
HELD = st.builds(lambda units, parts, waited, steps: Held(units, parts, waited, steps[1], steps[0]),
                 st.integers(1, 8000), PARTS, st.integers(0, 3600 * SECOND), STEPS)  # fmt: skip


@given(st.lists(HELD, max_size=20), st.integers(0, 20))
def test_any_grouping_adds_up(times, cut):
    whole, left, right = totals(times), totals(times[:cut]), totals(times[cut:])
    assert sum(whole.parts.values()) == pytest.approx(whole.held)
    for kind in CLASSES:
        assert left.parts[kind] + right.parts[kind] == pytest.approx(whole.parts[kind])
    assert left.held + right.held == pytest.approx(whole.held)
    for share in (whole.training, whole.effective, whole.iterations):
        assert share is None or 0 <= share <= 1


def test_the_three_ratios():
    parts = {"training": 60 * SECOND, "done_again": 12 * SECOND, "data": 8 * SECOND, "lost": 20 * SECOND}
    found = totals([Held(2000, parts, waited=25 * SECOND, steps=40, repeats=6)])
    assert (found.held, found.waited, found.largest_loss) == (200.0, 50.0, "lost")
    assert found.training == 0.6
    assert found.effective == 60 / 125
    assert found.iterations == pytest.approx(34 * (80 / 40) / 125)
    assert totals([]).training is None
