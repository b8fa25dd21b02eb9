"""What every set of samples can do, whatever its format."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

# Named parts of a sample: NumPy arrays, numbers, text or bytes.
Sample = Mapping[str, Any]


class Dataset(Protocol):
    """Samples by number, from any thread. Anything with these two methods can be trained on."""

    def __len__(self) -> int: ...

    def read(self, index: int) -> Sample: ...


class Stored(Dataset, Protocol):
    """A dataset that lies in files: its sizes were checked when it was opened."""

    def verify(self) -> None:
        """Reads everything; raises DataError, with the file, for content that isn't what was written."""

    def close(self) -> None:
        """Lets go of the files. A later read opens them again."""
