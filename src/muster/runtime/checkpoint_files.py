"""Takes the files of a checkpoint from a folder that another program may change meanwhile: linked where that is safe,
else copied.

The folder may belong to a user who has fewer rights than this process. So every name is opened below a folder that is
open already, no link is followed on the way, and nothing but plain files is read.
"""

from __future__ import annotations

import errno
import os
import stat
import threading
import zlib
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from typing import Final, NamedTuple

from muster.runtime import manifest, processes
from muster.runtime.manifest import COMMITTED, MANIFEST, Manifest

MANIFEST_MAX: Final = 64 << 20  # bytes
THREADS: Final = 4
HELD: Final = 256  # files of a checkpoint that are open at once, so that nobody can remove them while they are copied
_CHUNK: Final = 16 << 20  # bytes
_LOOK: Final = 0.2  # seconds between two looks whether to go on
_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
_FILE: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK  # a pipe must not hold this process
_NO_LINKS: Final = {
    errno.EXDEV: "they are on different file systems",
    errno.EMLINK: "its files have as many links as the file system allows",
    errno.EPERM: "the file system, or the kernel, allows no links to its files",
    errno.EACCES: "the kernel allows no links to its files",
    errno.ENOTSUP: "the file system has no links",
    errno.ENOSYS: "the file system has no links",
}
_NO_COPY: Final = (errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.EPERM, errno.EBADF)  # by the kernel

GoOn = Callable[[], bool]  # False: somebody wants this process to stop


class Vanished(Exception):
    """The checkpoint was removed meanwhile."""


class Unusable(Exception):
    """Why a checkpoint is not used, as the end of a sentence."""


class Stopped(Exception):
    """The caller was told to stop."""


class _NoLink(Exception):
    """Why the files can't be linked."""


class Committed(NamedTuple):
    """A checkpoint as a listing finds it."""

    name: str
    serial: int
    step: int
    damage: str = ""  # why it has no manifest
    gone: bool = False  # it was removed while the listing was made


@dataclass(frozen=True, slots=True)
class Owner:
    """Who has the files afterwards: the ranks' user. `links`: whether they may be those of the source."""

    uid: int
    gid: int
    links: bool


def open_folder(name: str, above: int | None = None) -> int:
    """A descriptor of a folder that is no link. Raises OSError."""
    return os.open(name, _FOLDER, dir_fd=above)


def committed(folder: int) -> list[Committed]:
    """The committed checkpoints, the newest first; those without a readable manifest last."""
    found = []
    for name in os.listdir(folder):
        if (match := COMMITTED.fullmatch(name)) is not None:
            step = int(match[1])
            try:
                found.append(Committed(name, read_manifest(folder, name).serial, step))
            except Unusable as error:
                found.append(Committed(name, -1, step, str(error)))
            except Vanished:
                found.append(Committed(name, -1, step, "it was removed", gone=True))
    return sorted(found, key=lambda each: (each.serial, each.step), reverse=True)


def read_manifest(folder: int, name: str) -> Manifest:
    """Raises Vanished, Unusable, OSError."""
    with _inside(folder, (name,)) as at:
        try:
            with _open(MANIFEST, at) as fd, os.fdopen(fd, "rb", closefd=False) as file:
                data = file.read(MANIFEST_MAX + 1)
        except Vanished:
            raise Unusable(f"it has no {MANIFEST}") from None
    if len(data) > MANIFEST_MAX:
        raise Unusable(f"its {MANIFEST} has more than {MANIFEST_MAX} bytes")
    try:
        return manifest.decode(data)
    except ValueError as error:
        raise Unusable(str(error)) from error


def take(source: int, into: int, found: Manifest, owner: Owner, go_on: GoOn) -> tuple[str, str]:
    """Puts the files of the checkpoint in the folder `source` into the empty folder `into`, and verifies them there.

    Returns "link" or "copy", and why it is a copy. Whatever is removed at the source from then on, they are whole.
    Raises Vanished, Unusable, Stopped, OSError; what is in `into` is of no use then.
    """
    names = sorted(found.files)
    folders = _make_folders(into, names, owner)
    how, why = "link", ""
    try:
        if not owner.links:
            raise _NoLink("")
        for name in names:
            _link(source, into, name, found.files[name][0], owner.uid)
            processes.fault("start_linked_file")
            if not go_on():
                raise Stopped
    except _NoLink as error:
        how, why = "copy", str(error)
        _clear(into, names)
        with ExitStack() as held:
            opened = {name: held.enter_context(_source(source, name, found.files[name][0])) for name in names[:HELD]}
            _in_threads(names, go_on, lambda name, on: _copy(source, opened.get(name), into, name, found, owner, on))
    _in_threads(names, go_on, lambda name, on: _verify(into, name, found.files[name][1], on))
    for place in folders:
        with _inside(into, place) as at:
            os.fsync(at)
    return how, why


def write_file(folder: int, name: str, data: bytes, owner: Owner, mode: int = 0o644) -> None:
    """Writes a new file durably."""
    fd = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, mode, dir_fd=folder)
    try:
        give(fd, owner)
        view = memoryview(data)
        while view:
            view = view[os.write(fd, view) :]
        os.fsync(fd)
    finally:
        os.close(fd)


def give(fd: int, owner: Owner) -> None:
    """Makes the ranks' user the owner of a new file or folder, if this process has another."""
    if os.geteuid() != owner.uid:
        os.fchown(fd, owner.uid, owner.gid)


# --- places ---------------------------------------------------------------------------------------------------------
def _parts(name: str) -> tuple[str, ...]:
    """The parts of a name in a manifest, which another user may have written."""
    parts = tuple(name.split("/"))
    if name == MANIFEST or "\0" in name or any(part in ("", ".", "..") for part in parts):
        raise Unusable(f"its {MANIFEST} names {name[:200]!r}, which can't be one of its files")
    return parts


@contextmanager
def _inside(folder: int, parts: Sequence[str]) -> Iterator[int]:
    """A descriptor of the folder that these names lead to."""
    at = os.dup(folder)
    try:
        for part in parts:
            try:
                below = os.open(part, _FOLDER, dir_fd=at)
            except FileNotFoundError:
                raise Vanished from None
            except OSError as error:
                if error.errno in (errno.ELOOP, errno.ENOTDIR):
                    raise Unusable(f"{part} in it is a link, or no folder") from None
                raise
            os.close(at)
            at = below
        yield at
    finally:
        os.close(at)


@contextmanager
def _open(leaf: str, at: int) -> Iterator[int]:
    """A descriptor of a plain file."""
    try:
        fd = os.open(leaf, _FILE, dir_fd=at)
    except FileNotFoundError:
        raise Vanished from None
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO, errno.EISDIR):
            raise Unusable(f"{leaf} in it is a link or no plain file") from None
        raise
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise Unusable(f"{leaf} in it is no plain file")
        yield fd
    finally:
        os.close(fd)


@contextmanager
def _source(source: int, name: str, size: int) -> Iterator[int]:
    """A file of the checkpoint, checked. Of a folder that another user owns, only that user's files are read."""
    *above, leaf = _parts(name)
    with _inside(source, above) as at, _open(leaf, at) as fd:
        found, owner = os.fstat(fd), os.fstat(source).st_uid
        if owner not in (os.geteuid(), found.st_uid):
            raise Unusable(f"{name} belongs to another user than its folder")
        if found.st_size != size:
            raise Unusable(f"{name} has {found.st_size} bytes; {size} were saved")
        yield fd


def _make_folders(into: int, names: Collection[str], owner: Owner) -> list[tuple[str, ...]]:
    """Makes the folders that these files are in. Returns them, the innermost first."""
    wanted = {above[:count] for name in names if (above := _parts(name)[:-1]) for count in range(1, len(above) + 1)}
    for place in sorted(wanted, key=len):
        with _inside(into, place[:-1]) as at:
            os.mkdir(place[-1], 0o755, dir_fd=at)
            with _inside(at, place[-1:]) as made:
                give(made, owner)
    return [*sorted(wanted, key=len, reverse=True), ()]


def _clear(into: int, names: Collection[str]) -> None:
    for name in names:
        *above, leaf = _parts(name)
        with _inside(into, above) as at, suppress(FileNotFoundError):
            os.unlink(leaf, dir_fd=at)


# --- one file -------------------------------------------------------------------------------------------------------
def _link(source: int, into: int, name: str, size: int, uid: int) -> None:
    """Links a file and makes it read-only, for both runs: a program that writes into it would damage both."""
    *above, leaf = _parts(name)
    with _inside(source, above) as there, _inside(into, above) as here:
        try:
            os.link(leaf, leaf, src_dir_fd=there, dst_dir_fd=here, follow_symlinks=False)
        except FileNotFoundError:
            raise Vanished from None
        except OSError as error:
            if error.errno in _NO_LINKS:
                raise _NoLink(_NO_LINKS[error.errno]) from None
            raise
        with _open(leaf, here) as fd:  # what was linked, whatever has that name at the source by now
            found = os.fstat(fd)
            if found.st_size != size:
                raise Unusable(f"{name} has {found.st_size} bytes; {size} were saved")
            if found.st_uid != uid:
                raise _NoLink("its files belong to another user")
            mode = stat.S_IMODE(found.st_mode)
            if mode != mode & 0o555:
                os.fchmod(fd, mode & 0o555)


def _copy(source: int, opened: int | None, into: int, name: str, found: Manifest, owner: Owner, on: GoOn) -> None:
    *above, leaf = _parts(name)
    size = found.files[name][0]
    with ExitStack() as held:
        fd = opened if opened is not None else held.enter_context(_source(source, name, size))
        at = held.enter_context(_inside(into, above))
        made = os.open(leaf, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o644, dir_fd=at)
        held.callback(os.close, made)
        give(made, owner)
        done, by_kernel = 0, True
        while done < size:
            if not on():
                raise Stopped
            count = 0
            if by_kernel:
                try:  # shares the blocks where the file system can
                    count = os.copy_file_range(fd, made, min(_CHUNK, size - done), done, done)
                except OSError as error:
                    if error.errno not in _NO_COPY:
                        raise
                by_kernel = count > 0
            if not by_kernel:
                count = os.pwrite(made, os.pread(fd, min(_CHUNK, size - done), done), done)
                if not count:
                    raise Unusable(f"{name} became shorter while it was copied")
            done += count
        os.fsync(made)


def _verify(into: int, name: str, expected: int, on: GoOn) -> None:
    *above, leaf = _parts(name)
    with _inside(into, above) as at, _open(leaf, at) as fd:
        crc = done = 0
        while chunk := os.pread(fd, _CHUNK, done):
            if not on():
                raise Stopped
            done += len(chunk)
            crc = zlib.crc32(chunk, crc)
    if crc != expected:
        raise Unusable(f"{name}: its checksum is {crc:08x}; it was saved with {expected:08x}")


def _in_threads(names: Sequence[str], go_on: GoOn, work: Callable[[str, GoOn], None]) -> None:
    """Does the work for each file. All threads have ended when it returns or raises: the caller forks later."""
    over = threading.Event()
    with ThreadPoolExecutor(THREADS) as pool:
        pending = {pool.submit(work, name, lambda: not over.is_set()) for name in names}
        try:
            while pending:
                done, pending = wait(pending, _LOOK)
                for each in done:
                    each.result()
                if not go_on():
                    raise Stopped
        finally:
            over.set()
            for each in pending:
                each.cancel()
