"""Milestones say the same of a run's restarts as all of its points do, and open few blocks for it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import count, pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metric_kit import MetricStore, Point, column, curve_of, metric_store
from muster.core.job import Attempt
from muster.monitor.goodput import Summary, Trail, summarise
from muster.track.metrics import block

STEPS = st.one_of(st.integers(0, 12), st.sampled_from([-(2**63), -5, 2**40, 2**63 - 1]))
VALUES = st.sampled_from([0.5, math.nan, math.inf, -math.inf])
POINTS = st.lists(st.tuples(STEPS, st.floats(0, 100), VALUES), max_size=12)
TOLD = st.lists(st.tuples(POINTS, st.lists(st.integers(0, 12), max_size=3), st.booleans()), min_size=1, max_size=4)


def attempts_of(numbers: list[int]) -> list[Attempt]:
    return [Attempt(number, 10.0 * number, [], 10.0 * number + 1, 10.0 * number + 9) for number in numbers]


@pytest.fixture(scope="module")
def one_shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MetricStore]:
    """For all examples, each of which is a run of its own."""
    with metric_store(f"sqlite:///{tmp_path_factory.mktemp('shop')}/m.db") as made:
        yield made


RUNS = count()


def by_all_points(made: MetricStore, run: str, numbers: list[int]) -> Summary:
    trails: dict[int, Trail] = {}
    for number in {*numbers, 1, 2, 3, 4}:
        points = [(step, time) for attempt, step, time, _ in made.seen(run, "loss") if attempt == number]
        if points:
            trails[number] = Trail([step for step, _ in points], [time for _, time in points])
    return summarise(attempts_of(numbers), trails, 95.0)


def by_milestones(made: MetricStore, run: str, numbers: list[int]) -> Summary:
    found = made.metrics.milestones(run, "loss", numbers)
    trails = {number: Trail([at.step for at in some], [at.time for at in some]) for number, some in found.items()}
    return summarise(attempts_of(numbers), trails, 95.0)


@settings(max_examples=100, deadline=None)
@given(expected_points=TOLD, numbers=st.lists(st.integers(1, 4), unique=True).map(sorted))
def test_a_summary_is_the_same_as_from_all_points(
    one_shop: MetricStore, expected_points: list[tuple[list[Point], list[int], bool]], numbers: list[int]
) -> None:
    """Steps in any order and more than once, in blocks, in the tail and in both, and attempts without points."""
    run = f"r{next(RUNS)}"
    for attempt, (points, cuts, compacted) in enumerate(expected_points, 1):
        edges = sorted({0, len(points), *(cut for cut in cuts if cut < len(points))})
        for begin, end in pairwise(edges):
            one_shop.add(run, attempt, 0, loss=column(points[begin:end]))
            if compacted:
                one_shop.metrics._compaction.compact(run)
    assert by_milestones(one_shop, run, numbers) == by_all_points(one_shop, run, numbers)


def test_of_many_blocks_few_are_opened(metric_shop: MetricStore, monkeypatch: pytest.MonkeyPatch) -> None:
    metric_shop.add("r", 1, 0, loss=curve_of(range(200_000)))
    metric_shop.metrics.compact("r")
    metric_shop.add("r", 2, 0, loss=curve_of(range(100_000, 300_000)))
    metric_shop.metrics.compact("r")
    metric_shop.add("r", 2, 0, loss=curve_of(range(300_000, 300_010)))
    expected = by_all_points(metric_shop, "r", [1, 2])
    assert expected.steps_repeated == 100_000
    opened: list[int] = []
    real = block.decode
    monkeypatch.setattr(block, "decode", lambda data: opened.append(len(data)) or real(data))
    assert by_milestones(metric_shop, "r", [1, 2]) == expected
    assert metric_shop.count("metric_blocks", "r") > 20
    assert len(opened) <= 4
