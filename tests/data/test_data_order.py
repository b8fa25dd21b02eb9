"""The computed order: a permutation in each epoch, exact mixing, the same for every world, any step on its own."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.data.errors import DataError
from muster.data.keyed import permute
from muster.data.mixing import Line, Tree, mixing
from muster.data.order import Order, Source
from muster.data.world import check, share

WEIGHTS = st.floats(1e-6, 1e6, allow_nan=False)


def _permuted(size: int, key: int) -> list[int]:
    values = np.arange(size, dtype=np.uint64)
    return permute(values, np.full(size, size, np.uint64), np.full(size, key, np.uint64)).tolist()


@settings(deadline=None)
@given(st.integers(1, 3000), st.integers(0, 2**64 - 1))
def test_every_key_names_a_permutation(size: int, key: int) -> None:
    assert sorted(_permuted(size, key)) == list(range(size))


@settings(deadline=None)
@given(st.integers(2**40, 2**52), st.lists(st.integers(0, 2**40 - 1), min_size=2, max_size=50, unique=True))
def test_places_of_a_huge_permutation_are_distinct_and_inside(size: int, values: list[int]) -> None:
    found = permute(
        np.array(values, np.uint64), np.full(len(values), size, np.uint64), np.full(len(values), 7, np.uint64)
    )
    assert len(set(found.tolist())) == len(values)
    assert int(found.max()) < size


def test_permutations_of_few_are_all_as_likely() -> None:
    """24 orders of four over 24,000 keys: chi-squared with 23 degrees of freedom is under 60 but for 1 in 30,000."""
    sizes, values = np.full(96000, 4, np.uint64), np.tile(np.arange(4, dtype=np.uint64), 24000)
    keys = np.repeat(np.random.default_rng(1).integers(0, 2**63, 24000, dtype=np.uint64), 4)
    found = Counter(tuple(row) for row in permute(values, sizes, keys).reshape(-1, 4).tolist())
    assert len(found) == 24
    assert sum((count - 1000) ** 2 / 1000 for count in found.values()) < 60


def test_where_a_sample_goes_is_spread_evenly() -> None:
    """Sample 0 of 100 under 20,000 keys: chi-squared with 99 degrees of freedom is under 165 but for 1 in 30,000."""
    keys = np.arange(20000, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    found = permute(np.zeros(20000, np.uint64), np.full(20000, 100, np.uint64), keys)
    counts = np.bincount(found.astype(int), minlength=100)
    assert ((counts - 200) ** 2 / 200).sum() < 165


def test_neighbours_do_not_stay_neighbours() -> None:
    moved = np.diff(_permuted(10000, 3))
    assert (np.abs(moved) == 1).sum() < 12  # 2 are expected; as many as 12 come once in a million


@settings(deadline=None)
@given(st.lists(WEIGHTS, min_size=1, max_size=12), st.integers(1, 64), st.integers(0, 10**12))
def test_mixing_gives_every_sample_to_one_source_and_errs_by_less_than_it_says(
    weights: list[float], batch: int, step: int
) -> None:
    way = mixing(weights, batch)
    whole = sum(weights)
    before, after = way.counts(step * batch), way.counts((step + 1) * batch)
    assert sum(before) == step * batch
    assert sum(after) == (step + 1) * batch
    assert all(late >= early for early, late in zip(before, after, strict=True))
    rounding = 1e-12 * step * batch  # of the floats in this test
    for count, weight in zip(before, weights, strict=True):
        assert abs(count - step * batch * weight / whole) < way.slack() + 1e-9 + rounding


@settings(deadline=None)
@given(st.lists(WEIGHTS, min_size=1, max_size=4), st.integers(1, 64))
def test_up_to_four_sources_err_by_less_than_one_sample(weights: list[float], batch: int) -> None:
    assert mixing(weights, batch).slack() <= 1


@settings(deadline=None)
@given(st.lists(WEIGHTS, min_size=5, max_size=30), st.integers(1, 4096))
def test_any_number_errs_by_less_than_one_where_a_batch_holds_every_source(weights: list[float], batch: int) -> None:
    way = mixing(weights, batch)
    assert isinstance(way, Line) or min(weights) * batch < sum(weights) * (1 + 1e-9)
    assert way.slack() <= (1 if isinstance(way, Line) else 2)


def test_a_rare_source_comes_at_its_time() -> None:
    way = mixing([0.999, 0.001], 4)
    assert isinstance(way, Tree)
    steps = [step for step in range(2500) if way.counts(4 * step + 4)[1] > way.counts(4 * step)[1]]
    assert steps == [124, 374, 624, 874, 1124, 1374, 1624, 1874, 2124, 2374]


SOURCES = st.lists(st.tuples(st.integers(1, 60), WEIGHTS), min_size=1, max_size=5)


@given(SOURCES, st.integers(1, 24), st.integers(-(2**70), 2**70), st.booleans())
@settings(max_examples=60, deadline=None)
def test_each_epoch_of_each_source_is_read_whole_once(
    sources: list[tuple[int, float]], batch: int, seed: int, shuffle: bool
) -> None:
    order = Order(tuple(Source(f"s{n}", size, w) for n, (size, w) in enumerate(sources)), batch, seed, shuffle)
    seen: dict[tuple[int, int], list[int]] = {}
    for step in range(40):
        samples = order.at(step)
        for source, epoch, index in zip(samples.source, samples.epoch, samples.index, strict=True):
            seen.setdefault((int(source), int(epoch)), []).append(int(index))
    counts = order.counts(40)
    for (source, epoch), indices in seen.items():
        size = sources[source][0]
        whole = epoch < counts[source] // size
        assert len(indices) == (size if whole else counts[source] % size)
        assert len(set(indices)) == len(indices)
        assert set(indices) <= set(range(size))


def test_epochs_are_shuffled_anew_and_unshuffled_is_in_order() -> None:
    order = Order((Source("a", 50),), 50, seed=1)
    orders = {tuple(order.at(step).index.tolist()) for step in range(20)}
    assert len(orders) == 20
    plain = Order((Source("a", 50),), 20, shuffle=False)
    assert np.concatenate([plain.at(step).index for step in range(5)]).tolist() == [*range(50), *range(50)]


def test_a_source_keeps_its_shuffle_when_others_join() -> None:
    alone = Order((Source("a", 40),), 8, seed=5)
    mixed = Order((Source("b", 10), Source("a", 40)), 16, seed=5)
    one = [int(index) for step in range(5) for index in alone.at(step).index]
    two = {
        int(i): 0 for step in range(5) for i, s in zip(mixed.at(step).index, mixed.at(step).source, strict=True) if s
    }
    assert sorted(one) == sorted(two) == list(range(40))
    assert mixed.at(0).source.sum() == 8
    first = {int(i) for i, s in zip(mixed.at(0).index, mixed.at(0).source, strict=True) if s}
    assert first == set(one[:8])


def test_seed_and_name_change_the_order() -> None:
    base = Order((Source("a", 1000),), 32, seed=1).at(0).index.tolist()
    assert Order((Source("a", 1000),), 32, seed=2).at(0).index.tolist() != base
    assert Order((Source("b", 1000),), 32, seed=1).at(0).index.tolist() != base
    assert Order((Source("a", 1000),), 32, seed=1).at(0).index.tolist() == base


def test_the_order_is_the_one_that_older_runs_had() -> None:
    """A resumed run must meet the order that it left: these numbers never change."""
    order = Order((Source("web", 10**9, 0.75), Source("code", 1000, 0.25)), 8, seed=42)
    samples = order.at(123_456_789)
    assert samples.source.tolist() == GOLDEN_SOURCE
    assert samples.index.tolist() == GOLDEN_INDEX
    assert samples.epoch.tolist() == GOLDEN_EPOCH


GOLDEN_SOURCE = [1, 0, 0, 0, 0, 1, 0, 0]
GOLDEN_INDEX = [187, 544223786, 166652126, 597098767, 52333464, 398, 85238523, 33716902]
GOLDEN_EPOCH = [246913, 0, 0, 0, 0, 246913, 0, 0]


@settings(deadline=None)
@given(st.integers(0, 2**40), st.integers(1, 8).map(lambda n: 2**n))
def test_a_far_step_is_as_good_as_a_near_one(step: int, batch: int) -> None:
    order = Order((Source("a", 2**33, 3.0), Source("b", 77, 1.0)), batch, seed=9)
    samples = order.at(step)
    assert len(samples) == batch
    assert ((samples.index >= 0) & (samples.index < np.array([2**33, 77])[samples.source])).all()
    assert (samples.epoch >= 0).all()


def test_no_half_of_the_batch_sees_more_of_a_source() -> None:
    """Without a shuffle inside the batch, two equal sources would each fill one half of every batch."""
    order = Order((Source("a", 100), Source("b", 100)), 32, seed=0)
    first = sum(int(order.at(step).source[:16].sum()) for step in range(400))
    assert abs(first - 3200) < 5 * np.sqrt(400 * 16 / 4 * 16 / 31)  # five standard deviations


@settings(deadline=None)
@given(st.integers(1, 6), st.integers(1, 4), st.integers(0, 60))
def test_ranks_and_micro_batches_share_out_the_batch(world: int, micros: int, more: int) -> None:
    batch = world * micros + more
    parts = [share(batch, world, rank, micros) for rank in range(world)]
    assert sorted(p for rank in parts for part in rank for p in range(batch)[part]) == list(range(batch))
    sizes = {part.stop - part.start for rank in parts for part in rank}
    assert sizes <= {batch // (world * micros), -(-batch // (world * micros))}
    for micro in range(micros):  # the m-th micro-batch of all ranks is one stretch, whatever their number
        together = sorted(p for rank in parts for p in range(batch)[rank[micro]])
        assert together == list(range(micro * batch // micros, (micro + 1) * batch // micros))


def test_a_batch_that_can_not_be_shared_out_is_refused_with_the_numbers() -> None:
    with pytest.raises(DataError, match=r"batch of 30 .* 4 data ranks x 2 micro-batches = 8.*Make the batch 24 or 32"):
        check(30, 4, 2, even=True)
    with pytest.raises(DataError, match=r"batch of 3 .*= 8\. Make the batch 8 or more,"):
        share(3, 4, 0, 2)
    with pytest.raises(DataError, match="rank 4 of 4"):
        share(8, 4, 4)
    with pytest.raises(DataError, match="each must be 1 or more"):
        share(8, 0, 0)


@pytest.mark.parametrize(
    ("sources", "batch", "says"),
    [
        ([], 4, "no source"),
        ([Source("a", 0)], 4, "'a' has 0 samples"),
        ([Source("a", 5, 0.0)], 4, r"'a' has weight 0\.0"),
        ([Source("a", 5, float("nan"))], 4, "'a' has weight nan"),
        ([Source("a", 5, float("inf"))], 4, "'a' has weight inf"),
        ([Source("a", 5)], 0, "a batch of 0"),
        ([Source("a", 5), Source("a", 6)], 4, "name 'a'"),
    ],
)
def test_an_order_that_cannot_be_is_refused(sources: list[Source], batch: int, says: str) -> None:
    with pytest.raises(DataError, match=says):
        Order(tuple(sources), batch)


def test_steps_count_from_zero() -> None:
    with pytest.raises(DataError, match="step -1"):
        Order((Source("a", 5),), 2).at(-1)


def test_neighbouring_steps_join_without_a_gap() -> None:
    order = Order((Source("a", 7, 0.3), Source("b", 11, 0.7)), 6, seed=3)
    counts = [order.counts(step) for step in range(50)]
    for step, (early, late) in enumerate(pairwise(counts)):
        given_now = np.bincount(order.at(step).source, minlength=2)
        assert (np.array(late) - np.array(early)).tolist() == given_now.tolist()
