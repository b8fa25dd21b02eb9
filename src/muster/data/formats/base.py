"""What a data format is: a way to write samples into a folder, and to open such a folder for random access."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from muster.data.dataset import Stored


@dataclass(frozen=True, slots=True)
class Format:
    """The two functions of a format's module. Options, by keyword, are the format's own.

    `write(folder, samples, **options)`: the dataset exists when it returns; cut off before, `open` refuses it.
    `open(folder, **options)`: raises DataError, with the file and the bytes, unless every shard is there with its size.
    What it opens gives `len`, `read(index)` in any order from any thread, `verify()` of the checksums, and `close()`.
    """

    write: Callable[..., None]
    open: Callable[..., Stored]
