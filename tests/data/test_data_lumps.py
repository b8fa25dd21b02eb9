"""Samples of many steps at once: over any shards, in memory that is used again, and in a thread where that is slow."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.data import Arrays, DataError, Loader, Order, Sample, Source, next_token, open_dataset
from muster.data.formats import tokens
from muster.data.formats.tokens import TokenShards
from muster.data.keyed import permute
from muster.data.recycled import Recycled
from muster.data.windows import over


def _open(folder: Path, shard: int, length: int, count: int = 5000) -> TokenShards:
    tokens.write(folder, [{"tokens": np.arange(count) % 60_000}], vocab=60_000, shard=shard)
    found = open_dataset("tokens", folder, length=length)
    assert isinstance(found, TokenShards)
    return found


@pytest.mark.parametrize(("shard", "length"), [(5000, 16), (700, 16), (33, 16), (10, 16), (1, 3), (400, 1)])
def test_gather_is_read_whatever_the_shards_are(tmp_path: Path, shard: int, length: int) -> None:
    """In one shard, across shards, and in shards that are shorter than a sample."""
    data = _open(tmp_path / "data", shard, length, 5000 if shard > 9 else 200)
    order = np.random.default_rng(1).permutation(len(data))
    for part in np.array_split(order, 4):  # the first maps the shards, the others find them
        expected = [data.read(int(index))["tokens"] for index in part]
        assert np.array_equal(data.gather(part)["tokens"], expected)
    data.close()
    assert np.array_equal(data.gather(order[:5])["tokens"], [data.read(int(each))["tokens"] for each in order[:5]])


@pytest.mark.parametrize("bad", [[-1], [0, 312], [0, 10**9], [-(2**62)], []])
def test_a_sample_that_is_not_there_is_refused(tmp_path: Path, bad: list[int]) -> None:
    data = _open(tmp_path / "data", 700, 16)
    assert len(data) == 312
    for _ in range(2):  # before the shards are mapped, and after
        with pytest.raises(DataError, match="there are 312"):
            data.gather(np.array(bad, np.int64))
        data.gather(np.arange(312))


def test_windows_refer_to_their_maps_until_they_are_dropped(tmp_path: Path) -> None:
    data = _open(tmp_path / "data", 700, 16)
    data.gather(np.arange(100))
    assert data._maps.made is not None
    data._maps.clear()
    assert data._maps.made is None
    assert over({}, np.zeros(0, np.int64), 4) is None


@given(st.integers(1, 2**30), st.integers(0, 2**64 - 1), st.integers(0, 2**20))
@settings(deadline=None, max_examples=40)
def test_shifts_from_tables_are_those_that_are_computed(size: int, key: int, start: int) -> None:
    values = (np.arange(1024, dtype=np.uint64) + np.uint64(start)) % np.uint64(size)
    sizes, keys = np.array([size], np.uint64), np.array([key], np.uint64)
    assert permute(values, sizes, keys).tolist() == permute(values, sizes.repeat(1024), keys.repeat(1024)).tolist()


def test_memory_is_used_again_when_nobody_refers_to_it() -> None:
    memory = Recycled()
    first = memory.empty((4, 3), np.int64)
    place, tensor = first.ctypes.data, torch.from_numpy(first[1:])
    del first
    held = [memory.empty((4, 3), np.int64) for _ in range(12)]
    assert place not in [each.ctypes.data for each in held]
    assert len({each.ctypes.data for each in held}) == 12
    del tensor
    assert memory.empty((4, 3), np.int64).ctypes.data == place
    assert memory.empty((4, 3), np.float64).dtype == np.float64


def test_a_batch_that_is_kept_does_not_change(tmp_path: Path) -> None:
    data = _open(tmp_path / "data", 700, 16)
    order = Order((Source("a", len(data)),), 8, seed=1)
    with Loader([data], order, collate=next_token) as loader:
        kept = [loader.at(step)[0].arrays for step in range(200)]
    for step, arrays in enumerate(kept):
        rows = np.array([data.read(int(index))["tokens"] for index in order.at(step).index])
        assert np.array_equal(arrays["inputs"], rows[:, :-1])
        assert np.array_equal(arrays["targets"], rows[:, 1:])


class Changing:
    """Sample i is i; some stretches of reading take long, and one sample can't be gathered nor read."""

    def __init__(self, slow: range, bad: int = -1) -> None:
        self.slow, self.bad, self.calls = slow, bad, 0

    def __len__(self) -> int:
        return 4096

    def read(self, index: int) -> Sample:
        if index == self.bad:
            raise OSError("gone")
        return {"tokens": np.array([index, index + 1])}

    def gather(self, indices: np.ndarray) -> Arrays:
        if self.bad in indices:
            raise OSError("gone")
        self.calls += 1
        if self.calls in self.slow:
            time.sleep(0.06)
        return {"tokens": np.stack([indices, indices + 1], axis=1)}


@pytest.mark.parametrize("slow", [range(0), range(1, 4), range(2, 5)])
def test_where_reading_takes_long_a_thread_does_it_and_the_batches_are_the_same(slow: range) -> None:
    order = Order((Source("a", 4096),), 32, seed=3)
    with Loader([Changing(slow)], order, collate=next_token) as loader:
        beside = []
        for step in range(2000):
            (batch,) = loader.at(step)
            assert batch.arrays["inputs"][:, 0].tolist() == order.at(step).index.tolist()
            beside.append(loader._lumps._reader is not None)
        assert any(beside) == bool(slow)
        assert not beside[-1]  # it comes quickly again


@pytest.mark.parametrize("slow", [range(0), range(1, 3)])
def test_only_the_step_with_a_bad_sample_fails(slow: range) -> None:
    order = Order((Source("a", 4096),), 32, seed=3)
    with Loader([Changing(slow, bad=77)], order, collate=next_token) as loader:
        for step in range(128):
            if 77 in order.at(step).index:
                with pytest.raises(DataError, match=rf"step {step}, position .* sample 77 of source 'a'"):
                    loader.at(step)
            else:
                assert loader.at(step)[0].arrays["inputs"][:, 0].tolist() == order.at(step).index.tolist()
