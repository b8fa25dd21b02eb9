"""The interfaces of datasets, independent of the format."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

# Named parts of a sample: NumPy arrays, numbers, text or bytes.
Sample = Mapping[str, Any]
# Named parts of several samples, each stacked.
Arrays = dict[str, NDArray[np.generic]]


class Dataset(Protocol):
    """Samples by number, from any thread. Anything with these two methods can be used for training."""

    def __len__(self) -> int: ...

    def read(self, index: int) -> Sample: ...


@runtime_checkable
class Gathers(Dataset, Protocol):
    """A dataset that reads several samples at once, faster than one by one."""

    def gather(self, indices: NDArray[np.int64]) -> Arrays:
        """The parts of these samples, stacked, as new arrays."""


class Stored(Dataset, Protocol):
    """A dataset in files; their sizes are checked when it is opened."""

    def verify(self) -> None:
        """Reads everything; raises DataError, with the file, if the content isn't what was written."""

    def close(self) -> None:
        """Closes the files. A later read opens them again."""
