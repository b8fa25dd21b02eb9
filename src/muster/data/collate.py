"""Functions that make one batch of arrays from a list of samples."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from muster.data.dataset import Arrays as Arrays
from muster.data.dataset import Sample
from muster.data.errors import DataError

Collate = Callable[[Sequence[Sample]], Arrays]
Empty = Callable[[tuple[int, ...], Any], NDArray[Any]]  # a new array of a shape and type, with any content
Stacked = Callable[[Arrays, Empty], Arrays]


@runtime_checkable
class CollatesStacked(Protocol):
    """A collate that also takes samples whose parts are stacked already, as `Gathers.gather` returns them.

    `stacked` is called when the step is asked for, in the caller's thread: there it costs less than handing over what
    it makes. So it should do no more than copy, into arrays of `empty`.
    """

    def __call__(self, samples: Sequence[Sample]) -> Arrays: ...

    def stacked(self, parts: Arrays, empty: Empty) -> Arrays: ...


class _Stack:
    """Stacks every part that is an array or a number. Leaves out text and bytes; your own collate can decode them."""

    def __call__(self, samples: Sequence[Sample]) -> Arrays:
        names = [name for name, value in samples[0].items() if not isinstance(value, (str, bytes, dict, list))]
        return {name: _stacked(name, samples) for name in names}

    def stacked(self, parts: Arrays, empty: Empty) -> Arrays:
        return parts


class _NextToken:
    """From windows of length s + 1: `inputs` i64[n, s] and `targets` i64[n, s], shifted by one."""

    def __call__(self, samples: Sequence[Sample]) -> Arrays:
        return self.stacked({"tokens": _stacked("tokens", samples)}, np.empty)

    def stacked(self, parts: Arrays, empty: Empty) -> Arrays:
        tokens = parts["tokens"]
        count, wide = tokens.shape
        inputs, targets = empty((2, count, wide - 1), np.int64)
        inputs[...] = tokens[:, :-1]
        targets[...] = tokens[:, 1:]
        return {"inputs": inputs, "targets": targets}


stack: Final = _Stack()
next_token: Final = _NextToken()


def _stacked(name: str, samples: Sequence[Sample]) -> NDArray[np.generic]:
    for number, sample in enumerate(samples):
        if name not in sample:
            raise DataError(f"sample {number} of the batch has no part {name!r}; it has {sorted(sample)}.")
    parts = [np.asarray(sample[name]) for sample in samples]
    for number, part in enumerate(parts):
        if part.shape != parts[0].shape:
            raise DataError(
                f"part {name!r} has shape {part.shape} in sample {number} of a batch, and {parts[0].shape} "
                "in the first. Pad or crop them to one shape in a collate of your own."
            )
    return np.stack(parts)
