"""Files of a dataset: written atomically, checked, and mapped into memory."""

from __future__ import annotations

import json
import mmap
import os
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Generic, TypeVar
from uuid import uuid4

import numpy as np
from numpy.typing import NDArray

from muster.data.errors import DataError

K = TypeVar("K")
INDEX: Final = "index.json"
_OPEN: Final = 256  # maps kept open at once: each holds a file descriptor, and a process often has only 1,024
_CHUNK: Final = 4 << 20  # bytes read at once


def mapped(path: Path) -> NDArray[np.uint8]:
    """The file's content, loaded on access. The array stays valid when the file is removed."""
    try:
        with path.open("rb") as file:
            return np.frombuffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), np.uint8)
    except (OSError, ValueError) as error:
        raise DataError(f"{path} cannot be read: {error}") from error


@dataclass(eq=False)
class Maps(Generic[K]):
    """Memory maps by the key that `load` takes; the oldest are dropped. Safe with threads and forks: each change is one
    atomic operation on a dictionary, and there is no lock that a fork could copy while it is held."""

    load: Callable[[K], NDArray[Any]]
    limit: int = _OPEN
    made: Any = field(default=None, init=False, repr=False)  # of the maps, by their user; dropped when they change
    _arrays: dict[K, NDArray[Any]] = field(default_factory=dict, repr=False)

    def content(self, key: K) -> NDArray[Any]:
        """The array stays valid after its map is dropped."""
        found = self._arrays.get(key)
        if found is None:
            found = self._arrays[key] = self.load(key)
            self.made = None
            while len(self._arrays) > self.limit:
                oldest, *_ = tuple(self._arrays)
                self._arrays.pop(oldest, None)
        return found

    def held(self) -> dict[K, NDArray[Any]]:
        return self._arrays.copy()

    def clear(self) -> None:
        self._arrays.clear()
        self.made = None


def check_size(path: Path, expected: int) -> None:
    """Raises DataError for a file that is missing or has another size."""
    try:
        found = path.stat().st_size
    except OSError as error:
        raise DataError(f"{path}: {error.strerror}; {expected} bytes were expected there.") from error
    if found != expected:
        what = "is cut off" if found < expected else "has grown"
        raise DataError(f"{path} {what}: it has {found} bytes and {expected} were expected. Write or copy it again.")


def crc32(path: Path, start: int = 0) -> int:
    """The CRC-32 of a file's content from an offset on."""
    crc = 0
    with path.open("rb") as file:
        file.seek(start)
        while chunk := file.read(_CHUNK):
            crc = zlib.crc32(chunk, crc)
    return crc


def read_index(folder: Path) -> Any:
    """The content of index.json. It is written last, so a folder without it was never finished."""
    path = folder / INDEX
    try:
        return json.loads(path.read_text("utf-8"))
    except FileNotFoundError as error:
        raise DataError(
            f"{path} doesn't exist: this is no dataset, or its writing was cut off. Write it again."
        ) from error
    except (OSError, ValueError) as error:
        raise DataError(f"{path} cannot be read: {error}") from error


def write_json(path: Path, content: Any) -> None:
    write_file(path, json.dumps(content, separators=(",", ":")).encode())


def write_file(path: Path, data: bytes) -> None:
    """Writes a file atomically; it is on disk before the call returns."""
    part = path.with_name(f".{path.name}.{uuid4().hex}.part")
    try:
        with part.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def fresh(folder: Path) -> None:
    """Creates the folder; refuses one that holds a finished dataset."""
    folder.mkdir(parents=True, exist_ok=True)
    if (folder / INDEX).exists():
        raise DataError(
            f"{folder} holds a dataset already ({INDEX} is there). Give another folder, or remove that one."
        )
