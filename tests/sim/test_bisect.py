"""The search for the least size that is good enough, over sizes that are known beforehand."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hypothesis import given
from hypothesis import strategies as st

from muster.sim.bisect import least


def counted(good: Callable[[int], bool]) -> tuple[Callable[[Sequence[int]], list[bool]], list[int]]:
    asked: list[int] = []

    def evaluate(sizes: Sequence[int]) -> list[bool]:
        asked.extend(sizes)
        return [good(size) for size in sizes]

    return evaluate, asked


@given(st.integers(0, 5), st.integers(0, 500), st.integers(0, 600), st.integers(0, 600), st.integers(1, 4))
def test_it_finds_the_least_and_tries_no_size_twice(low, span, threshold, start, width):
    high = low + span
    evaluate, asked = counted(lambda size: size >= threshold)
    found = least(evaluate, start, low, high, width)
    assert found.least == (max(threshold, low) if threshold <= high else None)
    assert found.is_monotone
    assert len(asked) == len(set(asked))
    assert all(low <= size <= high for size in asked)
    assert len(asked) <= 10 * (width + 2)


@given(st.lists(st.booleans(), min_size=1, max_size=80), st.integers(0, 90), st.integers(1, 3))
def test_the_answer_and_its_neighbours_were_tried_whatever_the_sizes_are_like(good, start, width):
    evaluate, _ = counted(lambda size: good[size])
    found = least(evaluate, start, 0, len(good) - 1, width)
    if found.least is None:
        assert found.tried[len(good) - 1] is False
        return
    size = found.least
    assert found.tried[size]
    assert size == 0 or found.tried[size - 1] is False
    assert size == len(good) - 1 or found.tried[size + 1]


def test_a_size_that_is_worse_than_a_smaller_one_is_noticed():
    evaluate, _ = counted(lambda size: size in (4, 6, 7, 8))
    found = least(evaluate, 4, 1, 8)
    assert (found.least, found.is_monotone) == (6, False)
