"""The order of several steps at once is that of a sample at a time, computed here with Python's own numbers."""

from __future__ import annotations

from math import isqrt

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.data import Loader, Order, Sample, Source
from muster.data.keyed import text_key
from muster.data.ledger import sample_hash, total
from muster.data.world import share

_MASK = (1 << 64) - 1
_STEP = 0x9E3779B97F4A7C15


def _mix(value: int) -> int:
    value = (value ^ value >> 30) * 0xBF58476D1CE4E5B9 & _MASK
    value = (value ^ value >> 27) * 0x94D049BB133111EB & _MASK
    return value ^ value >> 31


def _chain(*parts: int) -> int:
    state = 0
    for part in parts:
        state = _mix(((state ^ part) + _STEP) & _MASK)
    return state


def _permuted(value: int, size: int, key: int) -> int:
    wide = isqrt(size - 1) + 1
    high = -(-size // wide)
    while True:
        row, column = divmod(value, wide)
        for number in range(8):
            half = (key + _STEP * (number + 1)) & _MASK
            if number % 2 == 0:
                column = (column + _mix(row ^ half) % wide) % wide
            else:
                row = (row + _mix(column ^ half) % high) % high
        value = row * wide + column
        if value < size:
            return value


def _one_by_one(order: Order, step: int) -> list[tuple[int, int, int, int]]:
    """Source, index, epoch and position of each sample of a step."""
    serials = [
        (source, serial)
        for source, (early, late) in enumerate(zip(order.counts(step), order.counts(step + 1), strict=True))
        for serial in range(early, late)
    ]
    if len(order.sources) > 1:
        hashes = [_chain(order.seed & _MASK, text_key("places"), step, place) for place in range(order.batch)]
        serials = [serials[place] for place in sorted(range(order.batch), key=hashes.__getitem__)]
    found = []
    for position, (source, serial) in enumerate(serials):
        epoch, index = divmod(serial, order.sources[source].size)
        if order.shuffle:
            key = _chain(_chain(order.seed & _MASK, text_key(order.sources[source].name)), epoch)
            index = _permuted(index, order.sources[source].size, key)
        found.append((source, index, epoch, position))
    return found


SOURCES = st.lists(st.tuples(st.integers(1, 40) | st.integers(1, 2**40), st.floats(0.01, 100)), min_size=1, max_size=5)
ORDERS = st.builds(
    lambda sources, batch, seed, shuffle: Order(
        tuple(Source(f"s{number}", size, weight) for number, (size, weight) in enumerate(sources)), batch, seed, shuffle
    ),
    SOURCES, st.integers(1, 12), st.integers(-(2**70), 2**70), st.booleans(),
)  # fmt: skip


@given(ORDERS, st.integers(0, 60) | st.integers(0, 2**33), st.integers(1, 8))
@settings(deadline=None)
def test_a_span_is_its_steps_one_sample_after_the_other(order: Order, first: int, steps: int) -> None:
    found = order.span(first, first + steps)
    arrays = (found.source, found.index, found.epoch, found.position)
    expected = [row for step in range(first, first + steps) for row in _one_by_one(order, step)]
    assert list(zip(*(array.tolist() for array in arrays), strict=True)) == expected
    assert [array.dtype for array in arrays] == [np.int32, np.int64, np.int64, np.int64]


class Numbered:
    """Sample i of a source is its number and i."""

    def __init__(self, number: int, size: int) -> None:
        self.number, self.size = number, size

    def __len__(self) -> int:
        return self.size

    def read(self, index: int) -> Sample:
        return {"source": self.number, "index": index}


@given(ORDERS, st.integers(1, 4), st.integers(1, 3), st.lists(st.integers(0, 2**20), min_size=1, max_size=3))
@settings(deadline=None)
def test_every_rank_reads_its_part_wherever_it_begins(order: Order, world: int, micros: int, starts: list[int]) -> None:
    if order.batch < world * micros:
        order = Order(order.sources, world * micros, order.seed, order.shuffle)
    datasets = [Numbered(number, source.size) for number, source in enumerate(order.sources)]
    for rank in range(world):
        loader = Loader(datasets, order, world, rank, micros, ahead=0)
        for start in starts:  # each as after a resume
            for step in (start, start + 1, start + 2):
                for part, batch in zip(share(order.batch, world, rank, micros), loader.at(step), strict=True):
                    pairs = [(source, index) for source, index, _, _ in _one_by_one(order, step)[part]]
                    found = zip(batch.arrays["source"].tolist(), batch.arrays["index"].tolist(), strict=True)
                    assert list(found) == pairs
                    assert batch.hash == total(sample_hash(order.at(step)[part]))
