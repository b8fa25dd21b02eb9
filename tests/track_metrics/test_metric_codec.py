"""Blocks give back every bit, and pieces say of their points exactly what the points say."""

from __future__ import annotations

import math
from dataclasses import fields

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from muster.track.metrics import block, downsampled
from muster.track.metrics.block import Samples

STEPS = st.one_of(st.integers(0, 50), st.integers(-(2**63), 2**63 - 1))
VALUES = st.one_of(st.floats(), st.floats(width=32), st.sampled_from([0.0, -0.0, math.nan, math.inf, -math.inf]))


@st.composite
def runs(draw: st.DrawFn) -> Samples:
    size = draw(st.integers(1, 200))
    steps = draw(
        st.one_of(
            arrays.arrays(np.int64, size, elements=STEPS, fill=st.nothing()),
            st.builds(lambda first, stride: first + stride * np.arange(size), st.integers(0, 9), st.integers(-9, 9)),
        )
    )
    times = draw(arrays.arrays(np.float64, size, elements=st.floats(-1e9, 4e9)))
    values = draw(arrays.arrays(np.float64, size, elements=VALUES))
    return Samples(steps, times, values)


@given(runs())
def test_a_block_gives_back_every_bit(run: Samples) -> None:
    back = block.decode(block.encode(run))
    assert [each.tobytes() for each in (back.steps, back.times, back.values)] == [
        each.tobytes() for each in (run.steps, run.times, run.values)
    ]


@given(runs())
def test_pieces_say_what_their_points_say(run: Samples) -> None:
    found = downsampled.decode(downsampled.encode(run))
    assert int(found.count.sum()) == len(run)
    for place in range(len(found)):
        part = run.take(slice(place * downsampled.PIECE, (place + 1) * downsampled.PIECE))
        check_piece(found, place, part)


@given(st.lists(runs(), max_size=4), st.lists(st.integers(0, 3), max_size=6))
def test_blocks_decoded_together_are_what_each_is_alone(some: list[Samples], order: list[int]) -> None:
    """Whether they are alike, so that they are decoded at once, or not."""
    blocks = [downsampled.encode(some[at]) for at in order if at < len(some)]
    found = downsampled.decode_all(blocks)
    alone = downsampled.join([downsampled.decode(data) for data in blocks])
    for field in fields(downsampled.Downsampled):
        assert getattr(found, field.name).tobytes() == getattr(alone, field.name).tobytes(), field.name


@given(runs(), st.lists(st.integers(1, 199), max_size=9))
def test_fewer_pieces_say_the_same(run: Samples, breaks: list[int]) -> None:
    fine = downsampled.of_block(run)
    starts = np.array(sorted({0, *(b for b in breaks if b < len(fine))}), np.int64)
    coarse = downsampled.reduce(fine, starts)
    for place, (begin, end) in enumerate(zip(starts, [*starts[1:], len(fine)], strict=True)):
        part = run.take(slice(begin * downsampled.PIECE, end * downsampled.PIECE))
        check_piece(coarse, place, part, last=False)


def check_piece(found: downsampled.Downsampled, place: int, part: Samples, last: bool = True) -> None:
    real = part.values[~np.isnan(part.values)]
    assert (found.count[place], found.nans[place]) == (len(part), len(part) - len(real))
    assert (found.first_step[place], found.last_step[place]) == (part.steps.min(), part.steps.max())
    assert (found.first_time[place], found.last_time[place]) == (part.times.min(), part.times.max())
    if not len(real):
        assert np.isnan([found.low[place], found.high[place], found.mean[place]]).all()
    else:
        assert (found.low[place], found.high[place]) == (real.min(), real.max())
        expected = math.fsum(real / len(real)) if np.isfinite(real).all() else sum_of_infinite(real)
        assert math.isnan(expected) == math.isnan(found.mean[place])
        if not math.isnan(expected):
            assert math.isclose(found.mean[place], expected, rel_tol=1e-9, abs_tol=1e-9 * np.abs(real).max() + 1e-300)
    if last:
        newest = np.flatnonzero(part.steps == part.steps.max())[-1]
        np.testing.assert_equal(found.last[place], part.values[newest])


def sum_of_infinite(real: np.ndarray) -> float:
    both = np.isposinf(real).any() and np.isneginf(real).any()
    return math.nan if both else math.inf if np.isposinf(real).any() else -math.inf
