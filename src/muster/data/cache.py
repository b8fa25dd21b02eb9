"""A local cache of remote shards: whole files, fetched when they are first read, in a folder that keeps its size.

All processes of a node share the folder. Each shard that a process has mapped is locked by it, and is not removed; the
lock ends with the process, however that ends. Of the others the one that was opened longest ago makes room first.

    cache = ShardCache("/local/shards", 200 << 30, fetch)  # fetch(address, path) copies one object to a new file
    dataset = open_dataset("tokens", "s3://bucket/c4", length=1024, cache=cache)

The order of samples is that of the whole dataset, so a node reads from every shard all the time: give a limit that
holds the dataset. With a smaller one shards are fetched again and again.
"""

from __future__ import annotations

import fcntl
import hashlib
import mmap
import os
import shutil
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import numpy as np
from numpy.typing import NDArray

from muster.data.errors import DataError
from muster.data.files import INDEX, Maps, check_size

_SHARD, _PART, _CLAIM, _LOCK = ".shard", ".part", ".claim", ".lock"  # ends of names in the folder
_POLL: Final = 0.05  # seconds

Fetch = Callable[[str, Path], object]  # from an address to a file; a failure may leave a part of it
Check = Callable[[Path], None]  # raises DataError for a file that isn't what was written


@dataclass(frozen=True, slots=True)
class Remote:
    """A shard as it is stored remotely."""

    address: str
    size: int  # bytes
    check: Check


@dataclass(eq=False)
class ShardCache:
    """See the module. Raises DataError if there is no room, or the disk is full, and nothing in it can be removed."""

    folder: Path
    limit: int  # bytes of all shards in the folder
    fetch: Fetch
    patience: float = 60.0  # seconds to wait for room that other processes use
    _maps: weakref.WeakSet[Maps[Any]] = field(default_factory=weakref.WeakSet, init=False, repr=False)

    def __post_init__(self) -> None:
        self.folder = Path(self.folder)
        if self.limit < 1:
            raise DataError(f"{self.folder}: a cache of {self.limit} bytes; give 1 or more.")

    def dataset(self, address: str) -> Path:
        """Fetches a dataset's index into a folder of its own, by address and content: shards of a dataset that was
        written anew don't mix with the old ones."""
        self.folder.mkdir(parents=True, exist_ok=True)
        part = self.folder / f"{uuid4().hex}{_PART}"
        try:
            self._copy(f"{address}/{INDEX}", part)
            name = hashlib.sha256(f"{address}\n".encode() + part.read_bytes()).hexdigest()[:24]
            found = self.folder / name
            found.mkdir(exist_ok=True)
            part.replace(found / INDEX)
            return found
        finally:
            part.unlink(missing_ok=True)

    def watch(self, maps: Maps[Any]) -> None:
        """These maps are cleared when there is no room otherwise."""
        self._maps.add(maps)

    def content(self, path: Path, remote: Remote) -> NDArray[np.uint8]:
        """The content of a shard, fetched if it isn't there. It stays locked for as long as the array exists. The path
        is a name: the file is the cache's own."""
        name = path.with_name(path.name + _SHARD)
        found = _held(name, remote.size)
        if found is None:
            with _locked(path.with_name(path.name + _CLAIM)) as claim:
                found = _held(name, remote.size)  # another process may have fetched it meanwhile
                if found is None:
                    found = self._fetched(remote, name, claim)
        return np.frombuffer(found, np.uint8)

    def _fetched(self, remote: Remote, name: Path, claim: int) -> mmap.mmap:
        self._make_room(remote, claim)
        part = name.with_suffix(_PART)  # `_claimed` knows it by this name
        try:
            self._copy(remote.address, part)
            check_size(part, remote.size)
            remote.check(part)
            found = _mapped(part)  # locked before it has a name by which it could be removed
            part.replace(name)
            return found
        finally:
            part.unlink(missing_ok=True)
            os.ftruncate(claim, 0)

    def _copy(self, address: str, path: Path) -> None:
        try:
            self.fetch(address, path)
        except DataError:
            raise
        except Exception as error:
            free = shutil.disk_usage(self.folder).free
            raise DataError(
                f"{address} could not be fetched to {self.folder} ({free} bytes are free there): "
                f"{type(error).__name__}: {error}"
            ) from error

    def _make_room(self, remote: Remote, claim: int) -> None:
        """Removes shards until this one fits, and claims its bytes."""
        until: float | None = None
        while True:
            with _locked(self.folder / _LOCK):
                used, missing = self._missing(remote.size)
                if missing <= 0 or self._removed(missing):
                    os.pwrite(claim, str(remote.size).encode(), 0)
                    return
            for maps in list(self._maps):  # what this process has mapped itself
                maps.clear()
            if until is None:
                until = time.monotonic() + self.patience
                continue
            if time.monotonic() >= until:
                free = shutil.disk_usage(self.folder).free
                raise DataError(
                    f"{remote.address} has {remote.size} bytes, and {self.folder} has no room: of its limit of "
                    f"{self.limit} bytes {used} are used, all by processes that read them, and {free} are free on its "
                    "disk. Give a higher limit or another disk; it should hold the whole dataset."
                )
            time.sleep(_POLL)

    def _missing(self, size: int) -> tuple[int, int]:
        """The bytes that are used or claimed, and how many have to go for so many more."""
        claimed = sum(filter(None, (_claimed(path) for path in self.folder.glob(f"*/*{_CLAIM}"))))
        used = claimed + sum(size for _, size, _ in self._shards())
        return used, max(used + size - self.limit, claimed + size - shutil.disk_usage(self.folder).free)

    def _removed(self, missing: int) -> bool:
        """Removes shards that nobody reads, if they are large enough together; first those that were opened first."""
        for _, size, path in sorted(self._shards()):
            if missing <= 0:
                break
            with suppress(BlockingIOError, FileNotFoundError), path.open("rb") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # fails if somebody reads it
                path.unlink()
                missing -= size
        return missing <= 0

    def _shards(self) -> list[tuple[int, int, Path]]:
        """When each was opened last (in ns), its bytes and its path."""
        found = []
        for path in self.folder.glob(f"*/*{_SHARD}"):
            with suppress(FileNotFoundError):
                stat = path.stat()
                found.append((stat.st_mtime_ns, stat.st_size, path))
        return found


def _held(path: Path, size: int) -> mmap.mmap | None:
    """The mapped shard, if it is there. A file of another size was damaged: it is fetched again."""
    try:
        found = _mapped(path)
    except FileNotFoundError:
        return None
    if len(found) == size:
        with suppress(FileNotFoundError):
            os.utime(path)
        return found
    path.unlink(missing_ok=True)
    return None


def _mapped(path: Path) -> mmap.mmap:
    """Maps and locks a file. The lock belongs to the open file, which the map holds on to."""
    fd = os.open(path, os.O_RDONLY)
    try:
        fcntl.flock(fd, fcntl.LOCK_SH)
        if os.fstat(fd).st_nlink == 0:  # it was removed before it was locked
            raise FileNotFoundError(path)
        return mmap.mmap(fd, 0, access=mmap.ACCESS_READ)
    finally:
        os.close(fd)


def _claimed(path: Path) -> int:
    """The bytes that a process claims which fetches a shard at this moment; removes what a killed one has left."""
    fd = os.open(path, os.O_RDWR)
    try:
        text = os.pread(fd, 32, 0)
        if not text:
            return 0
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return int(text)
        path.with_name(path.name.removesuffix(_CLAIM) + _PART).unlink(missing_ok=True)
        os.ftruncate(fd, 0)
        return 0
    finally:
        os.close(fd)


@contextmanager
def _locked(path: Path) -> Iterator[int]:
    """Holds a lock file alone; its descriptor."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield fd
    finally:
        os.close(fd)
