"""The data ledger: a rolling hash of the samples of each step, by which a run proves that it skipped and repeated none.

Each rank hashes the samples that it really read and adds the hashes up; the sums of all ranks add up to the step's
total (mod 2**64), whatever the number of ranks. The total of each step is folded into the hash of all steps before it.
"""

from __future__ import annotations

from hashlib import blake2b
from struct import pack

import numpy as np

from muster.data.keyed import MASK, U64, chain, text_key
from muster.data.order import Order, Samples

START = 0  # the ledger before the first step


def sample_hash(samples: Samples) -> U64:
    """One hash for each sample, of its source's name, its epoch, its index and its place in the global batch."""
    names = np.array([text_key(source.name) for source in samples.sources], np.uint64)
    parts = (samples.epoch, samples.index, samples.position)
    return chain(names[samples.source], *(part.astype(np.uint64) for part in parts))


def total(hashes: U64) -> int:
    """The sum, which no order of the samples and no split over ranks changes (mod 2**64)."""
    return int(hashes.sum(dtype=np.uint64))


def fold(previous: int, step: int, total: int) -> int:
    """The ledger after a step, from the ledger before it and the step's total over all ranks."""
    return int.from_bytes(blake2b(pack("<3Q", previous, step, total & MASK), digest_size=8).digest(), "little")


def expected(order: Order, first: int, last: int, previous: int = START) -> int:
    """The ledger after steps first, first + 1, … last - 1, from the ledger before them; reads no data."""
    for step in range(first, last):
        previous = fold(previous, step, total(sample_hash(order.at(step))))
    return previous


def signed(value: int) -> int:
    """As a signed 64-bit number with the same bits, for tensors: their sums wrap in the same way."""
    return (value & MASK) - (1 << 64) if value & (1 << 63) else value & MASK


def unsigned(value: int) -> int:
    """The way back from `signed`."""
    return value & MASK
