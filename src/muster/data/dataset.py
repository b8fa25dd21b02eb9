"""The interfaces of datasets, independent of the format."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

# Named parts of a sample: NumPy arrays, numbers, text or bytes.
Sample = Mapping[str, Any]


class Dataset(Protocol):
    """Samples by number, from any thread. Anything with these two methods can be used for training."""

    def __len__(self) -> int: ...

    def read(self, index: int) -> Sample: ...


class Stored(Dataset, Protocol):
    """A dataset in files; their sizes are checked when it is opened."""

    def verify(self) -> None:
        """Reads everything; raises DataError, with the file, if the content isn't what was written."""

    def close(self) -> None:
        """Closes the files. A later read opens them again."""
