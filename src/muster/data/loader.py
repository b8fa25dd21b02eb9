"""Reads a rank's part of each step's batch, some steps ahead, in a thread beside training."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from types import TracebackType

from muster.data.collate import Arrays, Collate, stack
from muster.data.dataset import Dataset, Sample
from muster.data.errors import DataError
from muster.data.ledger import sample_hash, total
from muster.data.order import Order, Samples
from muster.data.world import share


@dataclass(frozen=True, slots=True)
class Batch:
    """One micro-batch of one rank. `hash` is its part of the step's total in the data ledger."""

    arrays: Arrays
    hash: int


@dataclass(eq=False)
class Loader:
    """Returns the micro-batches of any step, and reads the next steps while the caller works on this one.

    It holds no position: a resumed run calls `at` with its step. Call it from one thread only.
    """

    sources: Sequence[Dataset]  # in the order of `order.sources`
    order: Order
    world: int = 1  # data-parallel ranks
    rank: int = 0
    micros: int = 1  # micro-batches per step
    collate: Collate = stack
    ahead: int = 2  # steps read ahead; 0 reads in the caller's thread
    _pool: ThreadPoolExecutor | None = field(default=None, init=False, repr=False)
    _steps: dict[int, Future[list[Batch]]] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        _check(self)

    def at(self, step: int) -> list[Batch]:
        """This rank's micro-batches of a step. Raises DataError, with the position, for a sample that can't be read."""
        if self.ahead == 0:
            return self._read(step)
        wanted = range(step, step + self.ahead + 1)
        for old in [each for each in self._steps if each not in wanted]:
            self._steps.pop(old).cancel()
        if self._pool is None:
            self._pool = ThreadPoolExecutor(1, thread_name_prefix="muster-data")
        for each in wanted:
            if each not in self._steps:
                self._steps[each] = self._pool.submit(self._read, each)
        return self._steps.pop(step).result()

    def close(self) -> None:
        """Stops reading ahead and waits for the thread to end. The loader may be used again."""
        self._steps.clear()
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)
            self._pool = None

    def __enter__(self) -> Loader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _read(self, step: int) -> list[Batch]:
        samples = self.order.at(step)
        parts = share(self.order.batch, self.world, self.rank, self.micros)
        return [self._micro(step, number, samples[part]) for number, part in enumerate(parts)]

    def _micro(self, step: int, number: int, samples: Samples) -> Batch:
        read = [self._sample(step, samples, place) for place in range(len(samples))]
        try:
            arrays = self.collate(read)
        except Exception as error:
            raise DataError(
                f"step {step}, micro-batch {number} of data rank {self.rank}: its {len(read)} samples could not be "
                f"made into a batch: {_cause(error)}"
            ) from error
        return Batch(arrays, total(sample_hash(samples)))

    def _sample(self, step: int, samples: Samples, place: int) -> Sample:
        source, index = int(samples.source[place]), int(samples.index[place])
        try:
            return self.sources[source].read(index)
        except Exception as error:
            raise DataError(
                f"step {step}, position {samples.position[place]} of the batch: sample {index} of source "
                f"{self.order.sources[source].name!r} (epoch {samples.epoch[place]}) could not be read: {_cause(error)}"
            ) from error


def _cause(error: Exception) -> str:
    return str(error) if isinstance(error, DataError) else f"{type(error).__name__}: {error}"


def _check(loader: Loader) -> None:
    share(loader.order.batch, loader.world, loader.rank, loader.micros)
    if loader.ahead < 0:
        raise DataError(f"ahead is {loader.ahead}: give how many steps to read ahead, 0 or more.")
    named = loader.order.sources
    if len(loader.sources) != len(named):
        raise DataError(f"{len(loader.sources)} datasets for {len(named)} sources of the order: give one for each.")
    for source, dataset in zip(named, loader.sources, strict=True):
        if len(dataset) != source.size:
            raise DataError(
                f"source {source.name!r} has {source.size} samples in the order, but its dataset has {len(dataset)}. "
                "Make the order from the dataset's own length; if a resumed run says this, its data has changed."
            )
