"""Functions that make one batch of arrays from a list of samples."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from muster.data.dataset import Sample
from muster.data.errors import DataError

Arrays = dict[str, NDArray[np.generic]]
Collate = Callable[[Sequence[Sample]], Arrays]


def stack(samples: Sequence[Sample]) -> Arrays:
    """Stacks every part that is an array or a number. Leaves out text and bytes; your own collate can decode them."""
    names = [name for name, value in samples[0].items() if not isinstance(value, (str, bytes, dict, list))]
    return {name: _stacked(name, samples) for name in names}


def next_token(samples: Sequence[Sample]) -> Arrays:
    """From windows of length s + 1: `inputs` i64[n, s] and `targets` i64[n, s], shifted by one."""
    tokens = _stacked("tokens", samples).astype(np.int64)
    return {"inputs": np.ascontiguousarray(tokens[:, :-1]), "targets": np.ascontiguousarray(tokens[:, 1:])}


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
