"""The data ledger: equal over worlds, provable after a resume, and another for anything skipped, repeated or moved."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.data.ledger import START, expected, fold, sample_hash, signed, total, unsigned
from muster.data.order import Order, Samples, Source
from muster.data.world import share

ORDER = Order((Source("web", 90, 2.0), Source("code", 13, 1.0)), 24, seed=7)


def _run(order: Order, first: int, last: int, world: int, micros: int, previous: int = START) -> int:
    """What ranks do: each hashes what it read; the sums are added as the signed numbers of a tensor, which wrap."""
    for step in range(first, last):
        samples = order.at(step)
        parts = [part for rank in range(world) for part in share(order.batch, world, rank, micros)]
        sums = np.array([signed(total(sample_hash(samples[part]))) for part in parts], np.int64)
        previous = fold(previous, step, unsigned(int(sums.sum())))
    return previous


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 12), st.sampled_from([1, 2]), st.integers(0, 30), st.integers(0, 12))
def test_every_world_has_the_ledger_that_is_expected(world: int, micros: int, first: int, steps: int) -> None:
    assert _run(ORDER, first, first + steps, world, micros) == expected(ORDER, first, first + steps)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 20), st.integers(0, 20), st.sampled_from([1, 2, 4, 8]))
def test_a_resumed_run_ends_with_the_same_ledger_on_another_world(cut: int, more: int, world: int) -> None:
    saved = _run(ORDER, 0, cut, 3, 1)
    assert _run(ORDER, cut, cut + more, world, 1, saved) == expected(ORDER, 0, cut + more)


def test_a_step_skipped_or_repeated_shows() -> None:
    right = expected(ORDER, 0, 10)
    skipped = _run(ORDER, 6, 10, 2, 1, _run(ORDER, 0, 5, 2, 1))
    repeated = _run(ORDER, 4, 10, 2, 1, _run(ORDER, 0, 5, 2, 1))
    assert len({right, skipped, repeated}) == 3


def _changed(samples: Samples, **change: int) -> Samples:
    arrays = {name: getattr(samples, name).copy() for name in ("source", "index", "epoch", "position")}
    for name, value in change.items():
        arrays[name][0] = value
    return Samples(samples.sources, **arrays)


@pytest.mark.parametrize("change", [{"source": 1}, {"index": 91}, {"epoch": 5}, {"position": 99}])
def test_any_part_of_a_sample_changes_the_total(change: dict[str, int]) -> None:
    samples = Order((Source("web", 90), Source("code", 90)), 8, seed=0).at(0)[np.array([1, 2, 3])]
    samples = _changed(samples, source=0)
    assert total(sample_hash(samples)) != total(sample_hash(_changed(samples, **change)))


def test_two_samples_that_change_places_show_and_the_order_of_adding_does_not() -> None:
    samples = ORDER.at(3)
    backwards = samples[np.arange(len(samples))[::-1]]
    assert total(sample_hash(backwards)) == total(sample_hash(samples))
    swapped = samples.index.copy()
    swapped[[0, 1]] = swapped[[1, 0]]
    moved = Samples(samples.sources, samples.source, swapped, samples.epoch, samples.position)
    assert total(sample_hash(moved)) != total(sample_hash(samples))


def test_hashes_of_many_samples_are_distinct() -> None:
    order = Order((Source("a", 5000), Source("b", 5000)), 10000, seed=1)
    assert len(np.unique(np.concatenate([sample_hash(order.at(step)) for step in range(4)]))) == 40000


@settings(deadline=None)
@given(st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1))
def test_sums_wrap_alike_with_and_without_a_sign(one: int, two: int) -> None:
    assert -(2**63) <= signed(one) < 2**63
    assert unsigned(signed(one)) == one
    with np.errstate(over="ignore"):
        added = np.int64(signed(one)) + np.int64(signed(two))
    assert unsigned(int(added)) == (one + two) % 2**64


def test_the_ledger_is_the_one_that_older_runs_had() -> None:
    """A checkpoint carries it: these numbers never change."""
    assert fold(0, 1, 2) == GOLDEN_FOLD
    assert expected(Order((Source("web", 1000, 0.75), Source("code", 50, 0.25)), 8, seed=42), 0, 20) == GOLDEN_LEDGER


GOLDEN_FOLD = 0x7B88B61124DB5DCF
GOLDEN_LEDGER = 0xAD5E6D66D046905
