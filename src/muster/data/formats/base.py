"""The interface of a data format: writes samples into a folder, and opens such a folder for random access."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from muster.data.dataset import Stored


@dataclass(frozen=True, slots=True)
class Format:
    """The two functions of a format's module. Each format has its own keyword options.

    `write(folder, samples, **options)`: the dataset is complete when it returns; if it was interrupted, `open` refuses
    it.

    `open(folder, **options)`: raises DataError, with the file and the bytes, unless every shard exists and has its
    size. It returns an object with `len`, `read(index)` in any order from any thread, `verify()` of the checksums, and
    `close()`.
    """

    write: Callable[..., None]
    open: Callable[..., Stored]
