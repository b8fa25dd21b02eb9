"""The data ledger: a rolling hash of the samples of each step. It proves that a run skipped and repeated no sample.

Each rank hashes the samples that it actually read and adds the hashes. The sums of all ranks add up to the step's total
(mod 2**64), for any number of ranks. The total of each step is folded into the hash of all steps before it.
"""

from __future__ import annotations

from hashlib import blake2b
from struct import pack

import numpy as np

from muster.data.keyed import MASK, U64, chain, text_key
from muster.data.order import Order, Samples

START = 0  # the ledger before the first step


def sample_hash(samples: Samples) -> U64:
    """One hash per sample, of its source's name, its epoch, its index and its position in the global batch."""
    names = np.array([text_key(source.name) for source in samples.sources], np.uint64)
    epoch = samples.epoch
    if len(names) > 1:
        names = names[samples.source]
    elif len(epoch) and epoch.min() == epoch.max():
        epoch = epoch[:1]  # the same for all, as the name is
    return chain(names, *(part.astype(np.uint64) for part in (epoch, samples.index, samples.position)))


def total(hashes: U64) -> int:
    """The sum (mod 2**64). It doesn't depend on the order of the samples or their split over ranks."""
    return int(hashes.sum(dtype=np.uint64))


def fold(previous: int, step: int, total: int) -> int:
    """The ledger after a step, from the ledger before it and the step's total over all ranks."""
    return int.from_bytes(blake2b(pack("<3Q", previous, step, total & MASK), digest_size=8).digest(), "little")


def expected(order: Order, first: int, last: int, previous: int = START) -> int:
    """The ledger after steps first, first + 1, … last - 1, from the ledger before them. Reads no data."""
    for step in range(first, last):
        previous = fold(previous, step, total(sample_hash(order.at(step))))
    return previous


def signed(value: int) -> int:
    """The same bits as a signed 64-bit number, for tensors: their sums wrap in the same way."""
    return (value & MASK) - (1 << 64) if value & (1 << 63) else value & MASK


def unsigned(value: int) -> int:
    """The inverse of `signed`."""
    return value & MASK
