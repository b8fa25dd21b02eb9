"""Blob stores: blobs are staged, their digest is checked, and only then they are stored, complete and durable."""

from __future__ import annotations

import errno
import hashlib
import os
import secrets
import threading
import time
from collections.abc import Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, Final, Protocol

from muster.core.errors import ConfigError, NotFound, Unavailable

BLOCK: Final = 1 << 20  # bytes read or written at a time
SMALL: Final = 256 << 10  # bytes up to which a blob is staged in memory
_STAGES: Final = "incoming"
_LANES: Final = 8
_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL


class Stage:
    """A blob that is being written: a small one in memory, a larger one in a temporary file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.size = 0
        self._sum = hashlib.sha256()
        self._small = bytearray()
        self._file: BinaryIO | None = None

    @property
    def digest(self) -> str:
        return self._sum.hexdigest()

    @property
    def content(self) -> bytearray | None:
        """The whole content of a small blob; None if it is in the file."""
        return self._small if self._file is None else None

    def write(self, data: bytes | memoryview) -> None:
        self._sum.update(data)
        self.size += len(data)
        if self._file is None and self.size <= SMALL:
            self._small += data
            return
        self._write_file(data)

    def finish(self) -> None:
        """Flushes the file to disk and closes it."""
        file = self._write_file(b"")
        with folder_errors(self.path.parent):
            os.fsync(file.fileno())
            file.close()

    def _write_file(self, data: bytes | memoryview) -> BinaryIO:
        """Writes to the file. If there is none yet, creates it with the content so far."""
        with folder_errors(self.path.parent):
            if self._file is None:
                self._file = os.fdopen(os.open(self.path, _NEW, 0o600), "wb", 0)
                write_all(self._file, self._small)
                self._small = bytearray()
            write_all(self._file, data)
        return self._file

    def drop(self) -> None:
        """Deletes the temporary file; does nothing once the blob was stored."""
        if self._file is not None:
            with suppress(OSError):
                self._file.close()
            self.path.unlink(missing_ok=True)


class BlobStore(Protocol):
    """A store of blobs. Methods are thread-safe; the caller serialises calls for the same digest."""

    where: str  # shown to users

    def stage(self) -> Stage:
        """A new stage."""

    def keep(self, stage: Stage) -> None:
        """Stores a finished stage durably under its digest; does nothing if the blob exists already."""

    def keep_many(self, stages: Sequence[Stage]) -> None:
        """Stores many small blobs, faster than one after the other."""

    def read(self, digest: str, start: int, stop: int) -> Iterator[bytes]:
        """The bytes from `start` up to `stop`, in blocks. Raises NotFound if the blob doesn't exist."""

    def size(self, digest: str) -> int | None:
        """The blob's size in bytes; None if it doesn't exist."""

    def delete(self, digest: str) -> None: ...

    def digests(self) -> Iterator[tuple[str, float]]:
        """The digests of all stored blobs, each with its age in seconds."""

    def tidy(self, age: float) -> int:
        """Deletes abandoned stages that are older than `age` seconds. Returns their number."""


class LocalBlobs:
    """Blobs in a folder, at `ab/abcd...` by the first two characters of the digest, so that no folder gets large."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.where = str(folder)
        self._making = threading.Lock()
        self._made = False  # whether this process has made all folders durable

    def stage(self) -> Stage:
        return new_stage(self.folder / _STAGES)

    def keep(self, stage: Stage) -> None:
        self.keep_many([stage])

    def keep_many(self, stages: Sequence[Stage]) -> None:
        with folder_errors(self.folder):
            self._make_folders({self.path(stage.digest).parent for stage in stages})
            if len(stages) == 1:
                changed = {self._put(stages[0])}
            else:
                with ThreadPoolExecutor(_LANES, "muster-keep") as lanes:  # the disk flushes many files at once
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

    def _make_folders(self, wanted: Collection[Path]) -> None:
        """Makes all folders when the first one is needed: one flush, not one for each."""
        with self._making:
            if not self._made or not all(folder.is_dir() for folder in wanted):
                for number in range(256):
                    (self.folder / f"{number:02x}").mkdir(mode=0o700, parents=True, exist_ok=True)
                sync_folder(self.folder)
                sync_folder(self.folder.parent)
                self._made = True

    def _put(self, stage: Stage) -> Path | None:
        """Stores a stage. Returns the folder to be flushed, or None if the blob exists already."""
        target, content = self.path(stage.digest), stage.content
        if content is not None and _put_small(target, content):
            return target.parent
        stage.finish()
        if content is None and self.size(stage.digest) == stage.size:
            stage.drop()
            return None
        stage.path.replace(target)
        return target.parent


def _put_small(target: Path, content: bytearray) -> bool:
    """Writes a small blob to its place at once, so that its bytes and its entry reach the disk with one flush.

    Nothing refers to it before that. Returns False if a crash left another content there, which must be replaced.
    """
    try:
        file = os.fdopen(os.open(target, _NEW, 0o600), "wb", 0)
    except FileExistsError:
        with target.open("rb") as there:
            same = there.read(len(content) + 1) == content
            if same:
                os.fsync(there.fileno())  # whoever wrote it may have been killed before it did this
        return same
    with file:  # if this fails, the file stays until it is replaced or swept: by now it could be another thread's
        write_all(file, content)
        os.fsync(file.fileno())
    return True


class folder_errors:
    """Context manager that turns an OSError into an error with the folder and a hint."""

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
    with folder_errors(folder):
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


def write_all(file: BinaryIO, data: bytes | bytearray | memoryview) -> None:
    rest = memoryview(data)
    while len(rest):  # an unbuffered file may write less than it was given
        rest = rest[file.write(rest) or 0 :]


def blocks(file: BinaryIO, start: int, stop: int) -> Iterator[bytes]:
    """Reads the file in blocks. Closes it at the end, or when the iterator is dropped."""
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
    """Makes new entries of the folder durable."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def local_folder(setting: str, home: Path) -> Path:
    """The folder that the setting `artifacts` names; a relative path starts at the home folder."""
    folder = home / Path(setting).expanduser() if setting else home / "blobs"
    if folder.exists() and not folder.is_dir():
        raise ConfigError(f"artifacts is {setting!r}: {folder} is no folder.", "Name a folder, or s3://bucket/prefix.")
    return folder
