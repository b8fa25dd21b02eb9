"""The order in which samples are read: computed for any step on its own, and the same for every number of ranks.

Nothing is stored and nothing is drawn in sequence: step 1,000,000 costs as much as step 0, so a run resumes anywhere at
once. A change of the world size changes which rank reads a sample, but never in which step.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import isfinite

import numpy as np
from numpy.typing import NDArray

from muster.data.errors import DataError
from muster.data.keyed import MASK, U64, chain, permute, text_key
from muster.data.mixing import Line, Tree, mixing


@dataclass(frozen=True, slots=True)
class Source:
    """A set of samples with a weight in the mixture. Its name is part of the key of its shuffle and of the ledger."""

    name: str
    size: int  # samples per epoch
    weight: float = 1.0  # relative to the others; they need not add up to anything


@dataclass(frozen=True, slots=True)
class Samples:
    """The samples of a part of the global batch. All arrays have one entry per sample."""

    sources: tuple[Source, ...]
    source: NDArray[np.int32]  # number of the source
    index: NDArray[np.int64]  # index of the sample in its source
    epoch: NDArray[np.int64]  # number of complete passes over the source before
    position: NDArray[np.int64]  # position in the global batch

    def __len__(self) -> int:
        return len(self.index)

    def __getitem__(self, positions: slice | NDArray[np.int64]) -> Samples:
        picked = (self.source[positions], self.index[positions], self.epoch[positions], self.position[positions])
        return Samples(self.sources, *picked)


@dataclass(frozen=True)
class Order:
    """The order: the sources, the number of samples per step, and the seed of all shuffles.

    Each source is read completely once per epoch of its own, in a new order each time (in its own order with
    `shuffle=False`). After any number of steps each source has given its weight's share of all samples, with an error
    of less than `slack` samples. Within a batch the sources are in random order, so that every rank sees all of them.
    """

    sources: tuple[Source, ...]
    batch: int
    seed: int = 0
    shuffle: bool = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "sources", tuple(self.sources))
        _check(self)

    @property
    def slack(self) -> float:
        return self._mixing.slack()

    def counts(self, step: int) -> list[int]:
        """How many samples each source has given before this step."""
        return self._mixing.counts(_step(step) * int(self.batch))

    def at(self, step: int) -> Samples:
        """The samples of one step's global batch, in O(batch + sources) for any step."""
        return self.span(step, step + 1)

    def span(self, first: int, last: int, positions: NDArray[np.int64] | None = None) -> Samples:
        """The samples of steps first, first + 1, … last - 1, one step after the other.

        `positions`: only these of each global batch, in this order; a rank asks for its own.
        """
        steps = np.arange(_step(first), last)
        if positions is None:
            positions = np.arange(self.batch)
        source, serial = (self._alone if len(self.sources) == 1 else self._mixed)(steps, positions)
        size = self._sizes[source] if len(self.sources) > 1 else self._sizes
        epoch = serial // size
        index = serial - epoch * size
        if self.shuffle and len(index):
            keys = self._shuffles(source, epoch)
            index = permute(index.astype(np.uint64), size.astype(np.uint64), keys).astype(np.int64)
        return Samples(self.sources, source, index, epoch, np.tile(positions, len(steps)))

    def _alone(
        self, steps: NDArray[np.int64], positions: NDArray[np.int64]
    ) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """For one source: its number, and the serial number of each sample since step 0."""
        serial = (steps[:, None] * self.batch + positions).ravel()
        return np.zeros(len(serial), np.int32), serial

    def _mixed(
        self, steps: NDArray[np.int64], positions: NDArray[np.int64]
    ) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """For several sources: the source of each sample, and its serial number there since step 0."""
        numbers = [int(step) * int(self.batch) for step in steps]
        counts = np.array([self._mixing.counts(given) for given in [*numbers, numbers[-1] + int(self.batch)]], np.int64)
        given = np.diff(counts, axis=0)  # [steps, sources]
        source = np.repeat(np.tile(np.arange(len(self.sources), dtype=np.int32), len(steps)), given.ravel())
        # The serial number is that of the source's first sample in the batch, plus the sample's place among its own.
        first = counts[:-1] - (np.cumsum(given, axis=1) - given)
        serial = np.repeat(first.ravel(), given.ravel()).reshape(len(steps), -1) + np.arange(self.batch)
        shuffled = self._places(steps)[:, positions]
        source = np.take_along_axis(source.reshape(len(steps), -1), shuffled, axis=1)
        return source.ravel(), np.take_along_axis(serial, shuffled, axis=1).ravel()

    def _places(self, steps: NDArray[np.int64]) -> NDArray[np.int64]:
        """The shuffle of each step's batch: [steps, batch]. Every step has its own."""
        places = np.arange(self.batch, dtype=np.uint64)
        parts = (_u64(self.seed), _u64(text_key("places")), steps.astype(np.uint64)[:, None], places)
        return np.argsort(chain(*parts), axis=1, kind="stable")

    def _shuffles(self, source: NDArray[np.int32], epoch: NDArray[np.int64]) -> U64:
        """The key of each sample's shuffle, or the one key of all."""
        if len(self.sources) == 1 and epoch.min() == epoch.max():
            return chain(self._keys, epoch[:1].astype(np.uint64))
        return chain(self._keys[source], epoch.astype(np.uint64))

    @cached_property
    def _mixing(self) -> Line | Tree:
        return mixing([source.weight for source in self.sources], self.batch)

    @cached_property
    def _sizes(self) -> NDArray[np.int64]:
        return np.array([source.size for source in self.sources], np.int64)

    @cached_property
    def _keys(self) -> U64:
        names = np.array([text_key(source.name) for source in self.sources], np.uint64)
        return chain(_u64(self.seed), names)


def _u64(value: int) -> U64:
    return np.array([value & MASK], np.uint64)


def _step(step: int) -> int:
    if step < 0:
        raise DataError(f"step {step} was asked for: steps count from 0.")
    return int(step)


def _check(order: Order) -> None:
    if not order.sources:
        raise DataError("no source of data was given: name at least one.")
    if order.batch < 1:
        raise DataError(f"a batch of {order.batch} samples: give 1 or more.")
    names = [source.name for source in order.sources]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise DataError(
            f"two sources have the name {twice[0]!r}: the shuffle and the ledger know a source by its name."
        )
    for source in order.sources:
        if source.size < 1:
            raise DataError(f"source {source.name!r} has {source.size} samples: it must have 1 or more.")
        if not isfinite(source.weight) or source.weight <= 0:
            raise DataError(
                f"source {source.name!r} has weight {source.weight}: give a number above 0, or leave it out."
            )
