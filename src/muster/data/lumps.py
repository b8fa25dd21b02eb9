"""Reads the stored samples of several steps at once, of datasets that can: here where that is quick, else in a thread.

A thread's turns cost about as much as reading a batch that lies in the page cache. So the caller reads it, in lumps
that it makes batches of. Where a lump takes long (the disk is read, or a shard is fetched) a thread reads the
next ones beside the caller, until they come quickly again.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from muster.data.ahead import ReadAhead
from muster.data.dataset import Arrays, Gathers
from muster.data.spans import Span, Spans

_HERE: Final = 2048 << 10  # bytes of a lump that the caller reads
_BESIDE: Final = 512 << 10  # of one that the thread reads
_MOST: Final = 1024  # samples of a lump
_SLOW: Final = 5e-3  # seconds for a lump, as a moving average: with more the thread reads
_QUICK: Final = 2e-3  # with less the caller reads again
_WEIGHT: Final = 0.1  # of the last lump in the average; others on the machine delay one now and then
_LONGEST: Final = 0.05  # seconds that one lump counts as


@dataclass(frozen=True, slots=True)
class Lump:
    """The stored samples of the steps [first, last), one step after the other."""

    first: int
    last: int
    span: Span
    parts: Arrays


@dataclass(eq=False)
class Lumps:
    """The lump of any step. Call it from one thread only."""

    sources: Sequence[Gathers]
    spans: Spans
    ahead: int  # steps that the thread reads ahead at least; 0 for no thread, and for a step at a time
    _last: Lump | None = field(default=None, init=False, repr=False)
    _reader: ReadAhead[Lump] | None = field(default=None, init=False, repr=False)
    _size: int = field(default=0, init=False, repr=False)  # bytes of a step; 0 until one was read
    _seconds: float = field(default=0.0, init=False, repr=False)  # of a lump: the moving average

    def at(self, step: int) -> Lump:
        """The lump that holds a step. What a dataset raised is raised here."""
        last = self._last
        if last is None or not last.first <= step < last.last:
            last = self._last = None  # the next one takes its memory
            beside = self.ahead > 0 and self._seconds > (_SLOW if self._reader is None else _QUICK)
            last = self._last = self._beside(step) if beside else self._here(step)
        return last

    def close(self) -> None:
        if self._reader is not None:
            self._reader.close()
        self._reader = self._last = None

    def _here(self, step: int) -> Lump:
        self.close()
        count = self._steps(_HERE) if self.ahead else 1
        try:
            return self._read(range(step, step + count))[0]
        except Exception:
            if count == 1:
                raise
        return self._read(range(step, step + 1))[0]  # it may have been a later step

    def _beside(self, step: int) -> Lump:
        if self._reader is None:
            self._reader = ReadAhead(self._read)
        count = self._steps(_BESIDE)
        return self._reader.at(step, max(self.ahead, 2 * count), count)

    def _steps(self, size: int) -> int:
        return max(1, min(size // self._size, _MOST // self.spans.mine)) if self._size else 1

    def _read(self, steps: range) -> list[Lump]:
        """The same lump for each of these steps."""
        began = time.perf_counter()
        span = self.spans.of(steps)
        part = slice(self.spans.part(span, steps.start)[0], self.spans.part(span, steps.stop)[0])
        parts = gathered(self.sources, span.samples.source[part], span.samples.index[part])
        self._size = max(1, sum(array.nbytes for array in parts.values()) // len(steps))
        self._seconds += _WEIGHT * (min(time.perf_counter() - began, _LONGEST) - self._seconds)
        return [Lump(steps.start, steps.stop, span, parts)] * len(steps)


def gathered(sources: Sequence[Gathers], source: NDArray[np.int32], index: NDArray[np.int64]) -> Arrays:
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
