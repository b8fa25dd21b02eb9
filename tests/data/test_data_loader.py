"""The loader: right samples for every world, any step at once, reads ahead, and failures with the sample's place."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.data import Batch, DataError, Loader, Order, Sample, Source, build, next_token, open_dataset, stack
from muster.data.ledger import START, expected, fold


@dataclass
class Numbers:
    """Sample i is i plus an offset; `bad` cannot be read; `read_ones` counts."""

    size: int
    offset: int = 0
    bad: frozenset[int] = frozenset()
    read_ones: list[int] = field(default_factory=list)

    def __len__(self) -> int:
        return self.size

    def read(self, index: int) -> Sample:
        if index in self.bad:
            raise KeyError("no such thing")
        self.read_ones.append(index)
        return {"value": np.array([index + self.offset, index]), "label": index % 3, "name": f"n{index}"}


def _order(batch: int = 24) -> Order:
    return Order((Source("a", 100, 3.0), Source("b", 17, 1.0)), batch, seed=11)


def _loader(world: int = 1, rank: int = 0, micros: int = 1, ahead: int = 2) -> Loader:
    return Loader([Numbers(100), Numbers(17, 1000)], _order(), world, rank, micros, stack, ahead)


def _values(batches: list[Batch]) -> list[int]:
    return [int(value) for batch in batches for value in batch.arrays["value"][:, 0]]


@given(
    st.sampled_from([1, 2, 3, 4, 6]), st.sampled_from([1, 2]), st.lists(st.integers(0, 10**9), min_size=1, max_size=4)
)
@settings(max_examples=25, deadline=None)
def test_all_ranks_together_read_the_global_batch_at_any_step(world: int, micros: int, steps: list[int]) -> None:
    for step in steps:
        samples = _order().at(step)
        whole = (samples.index + 1000 * (samples.source == 1)).tolist()
        parts = [_loader(world, rank, micros, ahead=0).at(step) for rank in range(world)]
        by_micro = [value for micro in range(micros) for rank in parts for value in _values([rank[micro]])]
        assert by_micro == whole


def test_the_hashes_of_all_ranks_make_the_ledger() -> None:
    ledger = START
    loaders = [_loader(3, rank, 2) for rank in range(3)]
    for step in range(4, 12):
        ledger = fold(ledger, step, sum(batch.hash for loader in loaders for batch in loader.at(step)))
    assert ledger == expected(_order(), 4, 12)
    for loader in loaders:
        loader.close()


@given(st.lists(st.integers(0, 12), min_size=1, max_size=12))
@settings(max_examples=25, deadline=None)
def test_jumping_about_gives_what_a_fresh_loader_gives(steps: list[int]) -> None:
    with _loader() as loader:
        for step in steps:
            found, fresh = loader.at(step), _loader(ahead=0).at(step)
            assert _values(found) == _values(fresh)
            assert [batch.hash for batch in found] == [batch.hash for batch in fresh]


def test_the_next_steps_are_read_while_the_caller_works() -> None:
    seen, reached = [], threading.Event()

    def collate(samples: list[Sample]) -> dict[str, np.ndarray]:
        seen.append(threading.current_thread().name)
        if len(seen) == 3:
            reached.set()
        return stack(samples)

    with Loader([Numbers(100)], Order((Source("a", 100),), 4), collate=collate, ahead=2) as loader:
        loader.at(0)
        assert reached.wait(180)  # steps 1 and 2, without being asked for
        assert all(name.startswith("muster-data") for name in seen)
        loader.at(1)
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("muster-data")]


def test_no_more_is_read_than_was_asked_for_and_nothing_twice() -> None:
    source = Numbers(100)
    loader = Loader([source], Order((Source("a", 100),), 4, shuffle=False), ahead=3)
    for step in range(5):
        loader.at(step)
    loader.close()
    assert source.read_ones == list(range(len(source.read_ones)))
    assert len(source.read_ones) <= 4 * (5 + 3)


def test_it_may_be_used_again_after_close() -> None:
    loader = _loader()
    before = _values(loader.at(3))
    loader.close()
    loader.close()
    assert _values(loader.at(3)) == before
    loader.close()


@pytest.mark.parametrize("ahead", [0, 2])
def test_a_sample_that_cannot_be_read_is_named_when_its_step_is_asked_for(ahead: int) -> None:
    order = Order((Source("good", 8, 1.0), Source("web", 8, 1.0)), 4, seed=0)
    bad = next(step for step in range(9) if 5 in order.at(step).index[order.at(step).source == 1])
    place = next(p for p in range(4) if (order.at(bad).source[p], order.at(bad).index[p]) == (1, 5))
    with Loader([Numbers(8), Numbers(8, bad=frozenset([5]))], order, ahead=ahead) as loader:
        for step in range(bad):
            loader.at(step)
        says = rf"step {bad}, position {place} .* sample 5 of source 'web' \(epoch 0\) .* KeyError: 'no such thing'"
        for _ in range(2):  # and again: it is not forgotten
            with pytest.raises(DataError, match=says) as caught:
                loader.at(bad)
            assert isinstance(caught.value.__cause__, KeyError)


def test_a_collate_that_fails_is_named() -> None:
    def collate(samples: list[Sample]) -> dict[str, np.ndarray]:
        raise RuntimeError("odd")

    with (
        Loader([Numbers(8)], Order((Source("a", 8),), 4), 2, 1, 1, collate) as loader,
        pytest.raises(DataError, match=r"step 6, micro-batch 0 of data rank 1: its 2 samples .* RuntimeError: odd"),
    ):
        loader.at(6)


def test_what_does_not_fit_together_is_refused_before_anything_is_read() -> None:
    with pytest.raises(DataError, match="'a' has 100 samples in the order, but its dataset has 99"):
        Loader([Numbers(99), Numbers(17)], _order())
    with pytest.raises(DataError, match="1 datasets for 2 sources"):
        Loader([Numbers(100)], _order())
    with pytest.raises(DataError, match="24 samples is less than 25 data ranks x 1"):
        _loader(world=25)
    with pytest.raises(DataError, match="ahead is -1"):
        _loader(ahead=-1)


def test_stack_takes_arrays_and_numbers_and_says_what_does_not_fit() -> None:
    found = stack([Numbers(5).read(1), Numbers(5).read(2)])
    assert found["value"].tolist() == [[1, 1], [2, 2]]
    assert found["label"].tolist() == [1, 2]
    assert set(found) == {"value", "label"}
    with pytest.raises(DataError, match=r"'x' has shape \(3,\) in sample 1 of a batch, and \(2,\) in the first"):
        stack([{"x": np.zeros(2)}, {"x": np.zeros(3)}])
    with pytest.raises(DataError, match="sample 1 of the batch has no part 'x'"):
        stack([{"x": 1}, {"y": 1}])


def test_next_token_shifts_by_one() -> None:
    found = next_token([{"tokens": np.array([1, 2, 3, 4], np.uint16)}, {"tokens": np.array([5, 6, 7, 8], np.uint16)}])
    assert found["inputs"].tolist() == [[1, 2, 3], [5, 6, 7]]
    assert found["targets"].tolist() == [[2, 3, 4], [6, 7, 8]]
    assert found["inputs"].dtype == found["targets"].dtype == np.int64


def test_text_to_batches_is_the_same_on_every_world(tmp_path: Path) -> None:
    """From files to arrays: two sources of token shards, read by 1, 2 and then 4 ranks."""
    for name, text in (("web", "the quick brown fox " * 30), ("code", "def f(x): return x\n" * 20)):
        (tmp_path / f"{name}.txt").write_text(text)
        build.tokens([tmp_path / f"{name}.txt"], tmp_path / name, shard=100)
    datasets = [open_dataset("tokens", tmp_path / name, length=16) for name in ("web", "code")]
    order = Order([Source(n, len(d), w) for n, d, w in zip(("web", "code"), datasets, (3, 1), strict=True)], 8, seed=2)

    def global_batch(step: int, world: int) -> np.ndarray:
        ranks = [Loader(datasets, order, world, rank, 2, next_token, 0).at(step) for rank in range(world)]
        return np.concatenate([rank[micro].arrays["inputs"] for micro in range(2) for rank in ranks])

    straight = [global_batch(step, 1) for step in range(12)]
    resumed = [global_batch(step, 2 if step < 5 else 4) for step in range(12)]
    assert all(np.array_equal(one, two) for one, two in zip(straight, resumed, strict=True))
    assert straight[0].shape == (8, 16)
    assert b"quick" in bytes(straight[0].astype(np.uint8).tobytes())
