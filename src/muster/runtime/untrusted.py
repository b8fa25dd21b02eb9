"""Reads and removes files in a folder that ranks write to, without following links out of it.

The launcher has more rights than a rank: a link that a rank left must not make it read, or remove, anything else.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path


def open_plain(folder: Path, name: str) -> int:
    """A descriptor for reading. Raises OSError if the folder or the file is a link,
    or the file is not a regular one."""
    with _folder(folder) as at:
        fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=at)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(errno.EINVAL, "it is no plain file", str(folder / name))
    return fd


def read_plain(folder: Path, name: str, most: int) -> bytes:
    """The content of a file of at most `most` bytes. Raises OSError."""
    fd = open_plain(folder, name)
    with os.fdopen(fd, "rb") as file:
        data = file.read(most + 1)
    if len(data) > most:
        raise OSError(errno.EFBIG, f"it has more than {most} bytes", str(folder / name))
    return data


def names(folder: Path) -> list[str]:
    """The names in a folder; none if it is a link, or does not exist."""
    try:
        with _folder(folder) as at:
            return os.listdir(at)  # noqa: PTH208  (of a descriptor)
    except OSError:
        return []


def exists(folder: Path, name: str) -> bool:
    try:
        with _folder(folder) as at:
            os.stat(name, dir_fd=at, follow_symlinks=False)
    except OSError:
        return False
    return True


def remove(folder: Path, name: str) -> None:
    """Removes a file; does nothing if it does not exist."""
    with contextlib.suppress(OSError), _folder(folder) as at:
        os.unlink(name, dir_fd=at)


@contextlib.contextmanager
def _folder(folder: Path) -> Iterator[int]:
    at = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        yield at
    finally:
        os.close(at)
