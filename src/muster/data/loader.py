"""Reads a rank's part of each step's batch, some steps ahead, in a thread or in processes beside training."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Final

import numpy as np
from numpy.typing import NDArray

from muster.data.ahead import ReadAhead
from muster.data.collate import Arrays, Collate, CollatesStacked, stack
from muster.data.dataset import Dataset, Gathers, Sample
from muster.data.errors import DataError
from muster.data.ledger import sample_hash
from muster.data.order import Order, Samples
from muster.data.workers import Workers
from muster.data.world import share

# What makes of a stored sample the one that is collated, such as pixels of a JPEG. The seed is the same for the same
# sample of the same epoch on any number of ranks and workers: draw an augmentation from `np.random.default_rng(seed)`.
Decode = Callable[[Sample, int], Sample]
_LUMP: Final = 64  # samples that are read ahead at least where that is cheap: a thread's turn costs as much as a batch
_SPAN: Final = 1024  # samples whose order is computed at once: below a millisecond


@dataclass(frozen=True, slots=True)
class Batch:
    """One micro-batch of one rank. `hash` is its part of the step's total in the data ledger."""

    arrays: Arrays
    hash: int


@dataclass(frozen=True, slots=True)
class _Span:
    """This rank's samples of several steps."""

    first: int
    last: int
    samples: Samples
    hashes: NDArray[np.uint64]  # [samples]
    totals: list[int]  # of each micro-batch


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
    _reader: ReadAhead[list[Batch]] | Workers[Batch] | None = field(default=None, init=False, repr=False)
    _span: _Span | None = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        _check(self)
        parts = share(self.order.batch, self.world, self.rank, self.micros)
        self._positions = np.concatenate([np.arange(part.start, part.stop) for part in parts])
        ends = np.cumsum([part.stop - part.start for part in parts]).tolist()
        self._parts = list(zip([0, *ends[:-1]], ends, strict=True))  # begin and end of each micro-batch in a step
        self._gathers = [source for source in self.sources if isinstance(source, Gathers)]  # used if all are
        whole = self.decode is None and len(self._gathers) == len(self.sources)
        self._stacked = self.collate.stacked if whole and isinstance(self.collate, CollatesStacked) else None

    def at(self, step: int) -> list[Batch]:
        """This rank's micro-batches of a step. Raises DataError, with the position, for a sample that can't be read."""
        if self._reader is None:
            if self.workers:
                self._reader = Workers(self._micro, self.micros, self.workers, self.ahead)
            elif self.ahead:
                few = _LUMP // len(self._positions) if self._stacked else 0
                self._reader = ReadAhead(self._read, max(self.ahead, few), max(1, few // 2))
            else:
                return self._read(step)
        return self._reader.at(step)

    def close(self) -> None:
        """Stops reading ahead, and ends the thread or the workers. The loader may be used again."""
        if self._reader is not None:
            self._reader.close()
            self._reader = None

    def __enter__(self) -> Loader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _read(self, step: int) -> list[Batch]:
        return [self._micro(step, number) for number in range(self.micros)]

    def _micro(self, step: int, number: int) -> Batch:
        span = self._span
        if span is None or not span.first <= step < span.last:
            span = self._span = self._ordered(step)
        begin, end = self._parts[number]
        before = (step - span.first) * len(self._positions)
        part = slice(before + begin, before + end)
        arrays = self._gathered(span.samples.source[part], span.samples.index[part])
        if arrays is None:
            arrays = self._collated(step, number, span.samples[part], span.hashes[part])
        return Batch(arrays, span.totals[(step - span.first) * self.micros + number])

    def _ordered(self, step: int) -> _Span:
        """The samples of so many steps from this one on that there are about `_SPAN` of them."""
        mine = len(self._positions)
        steps = max(1, _SPAN // mine)
        samples = self.order.span(step, step + steps, self._positions)
        hashes = sample_hash(samples)
        begins = np.add.outer(np.arange(steps) * mine, [begin for begin, _ in self._parts])
        totals = np.add.reduceat(hashes, begins.ravel()).tolist()
        return _Span(step, step + steps, samples, hashes, totals)

    def _gathered(self, source: NDArray[np.int32], index: NDArray[np.int64]) -> Arrays | None:
        """The batch, read as a whole; None if that can't be done: reading its samples one by one says what is wrong."""
        if self._stacked is None:
            return None
        try:
            return self._stacked(_parts(self._gathers, source, index))
        except Exception:
            return None

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


def _parts(sources: Sequence[Gathers], source: NDArray[np.int32], index: NDArray[np.int64]) -> Arrays:
    """The stacked parts of samples of several datasets, in the samples' order."""
    if len(sources) == 1:
        return sources[0].gather(index)
    places = [np.flatnonzero(source == number) for number in range(len(sources))]
    found = [(where, sources[number].gather(index[where])) for number, where in enumerate(places) if len(where)]
    whole: Arrays = {}
    for name in found[0][1]:
        parts = [arrays[name] for _, arrays in found]
        whole[name] = np.empty((len(index), *parts[0].shape[1:]), np.result_type(*parts))
        for (where, _), part in zip(found, parts, strict=True):
            whole[name][where] = part
    return whole


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
