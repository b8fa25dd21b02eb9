"""Where content lies, by its digest: staged, its digest checked, and only then there, whole and durable."""

from __future__ import annotations

import errno
import hashlib
import os
import secrets
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, Final, Protocol

from muster.core.errors import ConfigError, NotFound, Unavailable

BLOCK: Final = 1 << 20  # bytes read or written at a time
_STAGES: Final = "incoming"
_LANES: Final = 8
_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})


class Stage:
    """Content on its way in, in a file that nobody takes for content yet. Its digest grows with what is written."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.size = 0
        self._sum = hashlib.sha256()
        self._file: BinaryIO | None = None

    @property
    def digest(self) -> str:
        return self._sum.hexdigest()

    def write(self, data: bytes | memoryview) -> None:
        with told(self.path.parent):
            if self._file is None:
                self._file = os.fdopen(os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb", 0)
            rest = memoryview(data)
            while len(rest):  # an unbuffered file may take less than it is given
                rest = rest[self._file.write(rest) or 0 :]
        self._sum.update(data)
        self.size += len(data)

    def finish(self) -> None:
        """Flushes it to the disk and closes it."""
        self.write(b"")  # so that there is a file, also for nothing
        assert self._file is not None
        with told(self.path.parent):
            os.fsync(self._file.fileno())
            self._file.close()

    def drop(self) -> None:
        """Leaves nothing behind; does nothing once the content was kept."""
        if self._file is not None:
            with suppress(OSError):
                self._file.close()
            self.path.unlink(missing_ok=True)


class BlobStore(Protocol):
    """What keeps content. Methods may be called from any thread; the caller orders those of one digest."""

    where: str  # for people

    def stage(self) -> Stage:
        """Room for new content."""

    def keep(self, stage: Stage) -> None:
        """Makes finished content durable under its digest; nothing happens when it is there already."""

    def keep_many(self, stages: Sequence[Stage]) -> None:
        """The same for many small ones, in less time than one after the other."""

    def read(self, digest: str, start: int, stop: int) -> Iterator[bytes]:
        """The bytes from `start` up to `stop`, in blocks. Raises NotFound when it is not there."""

    def size(self, digest: str) -> int | None:
        """In bytes; None when it is not there."""

    def delete(self, digest: str) -> None: ...

    def digests(self) -> Iterator[tuple[str, float]]:
        """All that lies there, each with its age in seconds."""

    def tidy(self, age: float) -> int:
        """Removes what was staged and then left so many seconds ago; how many there were."""


class LocalBlobs:
    """Content in a folder: `ab/abcd...` by the first two characters of the digest, so that no folder grows large."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.where = str(folder)

    def stage(self) -> Stage:
        return new_stage(self.folder / _STAGES)

    def keep(self, stage: Stage) -> None:
        self.keep_many([stage])

    def keep_many(self, stages: Sequence[Stage]) -> None:
        with told(self.folder):
            for folder in {self.path(stage.digest).parent for stage in stages}:
                make_folder(folder)
            if len(stages) == 1:
                changed = {self._put(stages[0])}
            else:
                with ThreadPoolExecutor(_LANES, "muster-keep") as lanes:  # the disk flushes many at once
                    changed = set(lanes.map(self._put, stages))
            for parent in filter(None, changed):
                sync_folder(parent)

    def read(self, digest: str, start: int, stop: int) -> Iterator[bytes]:
        try:
            file = self.path(digest).open("rb", buffering=0)
        except FileNotFoundError:
            raise gone(digest, self.where) from None
        return blocks(file, start, stop)

    def size(self, digest: str) -> int | None:
        try:
            return self.path(digest).stat().st_size
        except FileNotFoundError:
            return None

    def delete(self, digest: str) -> None:
        self.path(digest).unlink(missing_ok=True)

    def digests(self) -> Iterator[tuple[str, float]]:
        now = time.time()
        for folder in self.folder.glob("[0-9a-f][0-9a-f]"):
            for path in folder.iterdir():
                with suppress(FileNotFoundError):
                    yield path.name, now - path.stat().st_mtime

    def tidy(self, age: float) -> int:
        return tidy_stages(self.folder / _STAGES, age)

    def path(self, digest: str) -> Path:
        return self.folder / digest[:2] / digest

    def _put(self, stage: Stage) -> Path | None:
        """The folder that has a new name in it."""
        stage.finish()
        target = self.path(stage.digest)
        if self.size(stage.digest) == stage.size:
            stage.drop()
            return None
        stage.path.replace(target)
        return target.parent


class told:
    """Turns what a disk refuses into an error that says where and what to do."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __enter__(self) -> None: ...

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if not isinstance(error, OSError):
            return
        if error.errno in _FULL:
            message = f"The disk under {self._folder} is full; nothing was kept."
            raise Unavailable(message, "Free some space there, then send it again.") from error
        message = f"{self._folder} can't be written: {error.strerror}."
        raise Unavailable(message, "Mend its permissions or its disk, then send it again.") from error


def new_stage(folder: Path) -> Stage:
    with told(folder):
        make_folder(folder)
    return Stage(folder / f"{os.getpid()}-{secrets.token_hex(8)}")


def tidy_stages(folder: Path, age: float) -> int:
    left = 0
    for path in folder.glob("*-*"):
        with suppress(FileNotFoundError):
            if time.time() - path.stat().st_mtime > age:
                path.unlink()
                left += 1
    return left


def blocks(file: BinaryIO, start: int, stop: int) -> Iterator[bytes]:
    """Closes the file at the end, and when nobody reads on."""
    with file:
        file.seek(start)
        left = stop - start
        while left > 0 and (data := file.read(min(BLOCK, left))):
            left -= len(data)
            yield data


def gone(digest: str, where: str) -> NotFound:
    return NotFound(f"The content {digest} is not in {where}.", "Put it back from a backup, or upload it again.")


def make_folder(folder: Path) -> None:
    if folder.is_dir():
        return
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    sync_folder(folder.parent)


def sync_folder(folder: Path) -> None:
    """Makes new names in it durable."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def local_folder(setting: str, home: Path) -> Path:
    """The folder that `artifacts` of the settings names; a relative one starts from the home folder."""
    folder = home / Path(setting).expanduser() if setting else home / "blobs"
    if folder.exists() and not folder.is_dir():
        raise ConfigError(f"artifacts is {setting!r}: {folder} is no folder.", "Name a folder, or s3://bucket/prefix.")
    return folder
