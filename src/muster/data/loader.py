"""Reads a rank's part of each step's batch, some steps ahead, in a thread or in processes beside training."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from types import TracebackType

import numpy as np
from numpy.typing import NDArray

from muster.data.ahead import ReadAhead
from muster.data.collate import Arrays, Collate, CollatesStacked, Stacked, stack
from muster.data.dataset import Dataset, Gathers, Sample
from muster.data.errors import DataError
from muster.data.lumps import Lump, Lumps, gathered
from muster.data.order import Order, Samples
from muster.data.recycled import Recycled
from muster.data.spans import Spans
from muster.data.workers import Workers
from muster.data.world import share

# What makes of a stored sample the one that is collated, such as pixels of a JPEG. The seed is the same for the same
# sample of the same epoch on any number of ranks and workers: draw an augmentation from `np.random.default_rng(seed)`.
Decode = Callable[[Sample, int], Sample]


@dataclass(frozen=True, slots=True)
class Batch:
    """One micro-batch of one rank. `hash` is its part of the step's total in the data ledger."""

    arrays: Arrays
    hash: int


@dataclass(eq=False)
class Loader:
    """Returns the micro-batches of any step, and reads the next steps while the caller works on this one.

    It holds no position: a resumed run calls `at` with its step. Call it from one thread only. What it returns is the
    same for any number of `workers`. These are forked when the first step is asked for, so they need no pickle of the
    datasets; `decode` and `collate` must leave the GPU alone.
    """

    sources: Sequence[Dataset]  # in the order of `order.sources`
    order: Order
    world: int = 1  # data-parallel ranks
    rank: int = 0
    micros: int = 1  # micro-batches per step
    collate: Collate = stack
    ahead: int = 2  # steps read ahead; 0 reads in the caller's thread, if there are no workers
    workers: int = 0  # processes that read and decode; each has a micro-batch in work, so more steps may be read ahead
    decode: Decode | None = None
    _pool: Workers[Batch] | None = field(default=None, init=False, repr=False)
    _reader: ReadAhead[list[Batch]] | None = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        _check(self)
        self._spans = Spans(self.order, self.world, self.rank, self.micros)
        self._empty = Recycled().empty
        gathers = [source for source in self.sources if isinstance(source, Gathers)]
        whole = self.decode is None and len(gathers) == len(self.sources)
        self._stacked = self.collate.stacked if whole and isinstance(self.collate, CollatesStacked) else None
        self._lumps = Lumps(gathers, self._spans, self.ahead)  # used if `_stacked` is there, and no workers

    def at(self, step: int) -> list[Batch]:
        """This rank's micro-batches of a step. Raises DataError, with the position, for a sample that can't be read."""
        if self._stacked is not None and not self.workers:
            try:
                return self._batches(self._lumps.at(step), step, self._stacked)
            except Exception:  # reading the samples one by one says what is wrong
                return self._read(range(step, step + 1))[0]
        if self.workers:
            if self._pool is None:
                self._pool = Workers(self._micro, self.micros, self.workers, self.ahead)
            return self._pool.at(step)
        if self.ahead:
            if self._reader is None:
                self._reader = ReadAhead(self._read)
            return self._reader.at(step, self.ahead)
        return self._read(range(step, step + 1))[0]

    def close(self) -> None:
        """Stops reading ahead, and ends the thread or the workers. The loader may be used again."""
        self._lumps.close()
        for each in (self._reader, self._pool):
            if each is not None:
                each.close()
        self._reader = self._pool = None

    def __enter__(self) -> Loader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _batches(self, lump: Lump, step: int, stacked: Stacked) -> list[Batch]:
        before = (step - lump.first) * self._spans.mine
        first = (step - lump.span.first) * self.micros
        totals = lump.span.totals[first : first + self.micros]
        found = []
        for (begin, end), total in zip(self._spans.parts, totals, strict=True):
            parts = {name: array[before + begin : before + end] for name, array in lump.parts.items()}
            found.append(Batch(stacked(parts, self._empty), total))
        return found

    def _read(self, steps: range) -> list[list[Batch]]:
        return [[self._micro(step, number) for number in range(self.micros)] for step in steps]

    def _micro(self, step: int, number: int) -> Batch:
        """A micro-batch: read as a whole, or else sample by sample, which says what is wrong."""
        span = self._spans.of(range(step, step + 1))
        part = slice(*self._spans.part(span, step, number))
        total = self._spans.total(span, step, number)
        if self._stacked is not None:
            with suppress(Exception):
                read = gathered(self._lumps.sources, span.samples.source[part], span.samples.index[part])
                return Batch(self._stacked(read, np.empty), total)
        return Batch(self._collated(step, number, span.samples[part], span.hashes[part]), total)

    def _collated(self, step: int, number: int, samples: Samples, seeds: NDArray[np.uint64]) -> Arrays:
        read = [self._sample(step, samples, place, int(seeds[place])) for place in range(len(samples))]
        try:
            return self.collate(read)
        except Exception as error:
            raise DataError(
                f"step {step}, micro-batch {number} of data rank {self.rank}: its {len(read)} samples could not be "
                f"made into a batch: {_cause(error)}"
            ) from error

    def _sample(self, step: int, samples: Samples, place: int, seed: int) -> Sample:
        source, index = int(samples.source[place]), int(samples.index[place])
        failed = "read"
        try:
            sample = self.sources[source].read(index)
            failed = "decoded"
            return sample if self.decode is None else self.decode(sample, seed)
        except Exception as error:
            raise DataError(
                f"step {step}, position {samples.position[place]} of the batch: sample {index} of source "
                f"{self.order.sources[source].name!r} (epoch {samples.epoch[place]}) could not be {failed}: "
                f"{_cause(error)}"
            ) from error


def _cause(error: Exception) -> str:
    return str(error) if isinstance(error, DataError) else f"{type(error).__name__}: {error}"


def _check(loader: Loader) -> None:
    share(loader.order.batch, loader.world, loader.rank, loader.micros)
    if loader.ahead < 0:
        raise DataError(f"ahead is {loader.ahead}: give how many steps to read ahead, 0 or more.")
    if loader.workers < 0:
        raise DataError(f"workers is {loader.workers}: give how many processes read and decode, 0 for none.")
    named = loader.order.sources
    if len(loader.sources) != len(named):
        raise DataError(f"{len(loader.sources)} datasets for {len(named)} sources of the order: give one for each.")
    for source, dataset in zip(named, loader.sources, strict=True):
        if len(dataset) != source.size:
            raise DataError(
                f"source {source.name!r} has {source.size} samples in the order, but its dataset has {len(dataset)}. "
                "Make the order from the dataset's own length; if a resumed run says this, its data has changed."
            )
