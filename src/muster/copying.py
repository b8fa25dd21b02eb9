"""Copies a file or a folder as a stream: sends it on one machine, receives it on another. Standard library only.

The stream is lines of JSON, one for each entry, and after that of a file its bytes and their SHA-256. The receiver does
not trust the sender: it takes no path out of the folder that it makes, no link that leads out of it, and nothing but
files, folders and such links. Nothing has its final name before all of it has come and was checked.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import signal
import stat
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any, Final, NamedTuple

LINE: Final = 64 << 10  # bytes of one line
BLOCK: Final = 256 << 10
_DIGEST: Final = 32  # bytes

Progress = Callable[[int, int], None]  # bytes so far, and bytes in all


class CopyError(Exception):
    """Why it can't be copied, as a sentence."""


class Copied(NamedTuple):
    files: int
    bytes: int
    skipped: int  # what is no file, folder or link


def send(path: str, write: Callable[[bytes], Any], progress: Progress | None = None) -> Copied:
    """Writes the stream of a file or a folder. Raises CopyError, OSError."""
    root = os.path.realpath(path)
    entries = list(_entries(root))
    total = sum(found.st_size for _, found in entries if stat.S_ISREG(found.st_mode))
    write(_line(kind="begin", name=Path(root).name, bytes=total))
    files = sent = skipped = 0
    for inside, found in entries:
        place = os.path.join(root, inside) if inside else root  # noqa: PTH118
        if stat.S_ISDIR(found.st_mode):
            write(_line(kind="folder", path=inside))
        elif stat.S_ISLNK(found.st_mode):
            write(_line(kind="link", path=inside, to=os.readlink(place)))  # noqa: PTH115
        elif stat.S_ISREG(found.st_mode):
            files += 1
            for part in _file(place, inside):
                write(part)
                sent += len(part)
                if progress is not None:
                    progress(min(sent, total), total)
        else:
            skipped += 1
    write(_line(kind="end", files=files, skipped=skipped))
    return Copied(files, total, skipped)


def receive(more: Callable[[], bytes], target: Path, progress: Progress | None = None) -> Copied:
    """Makes `target`, or an entry in it if it is a folder, from the stream; `more` is empty at its end.

    Raises CopyError, OSError. Then nothing is left of it, unless it was to be merged into a folder that exists.
    """
    stream = _Stream(more)
    begin = stream.line()
    name, total = begin.get("name"), begin.get("bytes")
    if begin.get("kind") != "begin" or not isinstance(total, int) or not isinstance(name, str):
        raise CopyError("what came is no copy")
    if target.is_dir():
        target = target / _inside(name) if name else target
    if not target.parent.is_dir():
        raise CopyError(f"there is no folder {target.parent}")
    draft = target.parent / f".{target.name[:100]}.{os.urandom(4).hex()}.part"
    try:
        copied = _write(stream, draft, total, progress)
        _place(draft, target)
        return copied
    finally:
        if draft.is_dir() and not draft.is_symlink():
            shutil.rmtree(draft, ignore_errors=True)
        else:
            draft.unlink(missing_ok=True)


def main(direction: str, path: str) -> int:
    """Sends to standard output, or receives from standard input; the exit status."""
    signal.signal(signal.SIGHUP, _stop)  # the session has ended: what came so far is removed
    try:
        if direction == "send":
            send(path or ".", _write_all)
        else:
            receive(lambda: os.read(0, BLOCK), Path(path or "."))
    except (CopyError, OSError) as error:
        os.write(2, f"{error}\n".encode(errors="replace"))
        return 1
    return 0


class _Stream:
    """Cuts what comes into lines and blocks."""

    def __init__(self, more: Callable[[], bytes]) -> None:
        self._more = more
        self._held = b""

    def line(self) -> dict[str, Any]:
        while (at := self._held.find(b"\n")) < 0:
            if len(self._held) > LINE:
                raise CopyError("what came is no copy")
            self._fill()
        line, self._held = self._held[:at], self._held[at + 1 :]
        try:
            doc = json.loads(line)
        except (ValueError, RecursionError):
            doc = None
        if not isinstance(doc, dict):
            raise CopyError("what came is no copy")
        return doc

    def blocks(self, size: int) -> Iterator[bytes]:
        while size:
            if not self._held:
                self._fill()
            part, self._held = self._held[:size], self._held[size:]
            size -= len(part)
            yield part

    def _fill(self) -> None:
        data = self._more()
        if not data:
            raise CopyError("the copy broke off before its end")
        self._held += data


def _write(stream: _Stream, draft: Path, total: int, progress: Progress | None) -> Copied:
    """Writes all entries below a new name. Links come last, so that no entry is written through one."""
    links: list[tuple[Path, str]] = []
    files = got = 0
    while (entry := stream.line()).get("kind") != "end":
        place = draft / _inside(entry.get("path"))
        if entry["kind"] == "folder":
            place.mkdir()
        elif entry["kind"] == "link":
            links.append((place, _target(entry)))
        elif entry["kind"] == "file" and isinstance(entry.get("size"), int) and entry["size"] >= 0:
            files += 1
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
            mode = 0o777 if entry.get("runs") is True else 0o666
            digest = hashlib.sha256()
            with os.fdopen(os.open(place, flags, mode), "wb") as file:
                for part in stream.blocks(entry["size"]):
                    file.write(part)
                    digest.update(part)
                    got += len(part)
                    if progress is not None:
                        progress(got, total)
            if b"".join(stream.blocks(_DIGEST)) != digest.digest():
                raise CopyError(f"{entry['path'] or 'the file'} did not come as it was sent, or changed meanwhile")
        else:
            raise CopyError("what came is no copy")
    if entry.get("files") != files or not isinstance(entry.get("skipped"), int) or not os.path.lexists(draft):
        raise CopyError("what came is not all of it")
    for place, to in links:
        place.symlink_to(to)
    return Copied(files, got, entry["skipped"])


def _place(draft: Path, target: Path) -> None:
    """Gives a complete copy its name. What is in a folder that exists is replaced file by file, the rest stays."""
    if draft.is_dir() and not draft.is_symlink() and os.path.lexists(target):
        if target.is_symlink() or not target.is_dir():
            raise CopyError(f"{target} is no folder")
        for one in sorted(draft.iterdir()):
            _place(one, target / one.name)
        return
    if target.is_dir() and not target.is_symlink():
        raise CopyError(f"{target} is a folder")
    draft.replace(target)


def _inside(path: object) -> str:
    """A relative path without any part that leads out; empty for the copied file or folder itself."""
    if not isinstance(path, str):
        raise CopyError("what came is no copy")
    parts = path.split("/") if path else []
    if path.startswith("/") or "\0" in path or any(part in ("", ".", "..") for part in parts):
        raise CopyError(f"the sender names {path!r}, which is not inside of the copy; it is refused")
    return path


def _target(entry: dict[str, Any]) -> str:
    """The target of a link. It may climb first, within the copy, and then only go down, so that no other link of the
    copy can make it lead out."""
    path, to = str(entry.get("path")), entry.get("to")
    parts = to.split("/") if isinstance(to, str) else []
    climbs = len(parts) - len([*_after_climbing(parts)])
    down = [*_after_climbing(parts)]
    if not path or not parts or parts[0] == "" or "\0" in str(to) or ".." in down or climbs > path.count("/"):
        raise CopyError(f"{path or 'the file'} is a link to {to!r}, which leads out of the copy; it is refused")
    return str(to)


def _after_climbing(parts: list[str]) -> Iterator[str]:
    climbing = True
    for part in parts:
        climbing = climbing and part == ".."
        if not climbing:
            yield part


def _entries(root: str) -> Iterator[tuple[str, os.stat_result]]:
    """Everything at and below a path, folders before what is in them; links are not followed."""
    found = os.lstat(root)
    yield "", found
    if stat.S_ISDIR(found.st_mode):
        for at, folders, files in os.walk(root, onerror=_raise):
            for name in sorted((*folders, *files)):
                place = os.path.join(at, name)  # noqa: PTH118
                with contextlib.suppress(FileNotFoundError):  # a job goes on writing and removing
                    yield os.path.relpath(place, root), os.lstat(place)


def _file(place: str, inside: str) -> Iterator[bytes]:
    """The entry of a file, its bytes and their digest."""
    fd = os.open(place, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    with os.fdopen(fd, "rb") as file:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode):
            raise CopyError(f"{place} is no file any more")
        yield _line(kind="file", path=inside, size=found.st_size, runs=bool(found.st_mode & 0o100))
        digest, left = hashlib.sha256(), found.st_size
        while left:
            part = file.read(min(BLOCK, left))
            if not part:
                raise CopyError(f"{place} became shorter while it was copied")
            digest.update(part)
            left -= len(part)
            yield part
        yield digest.digest()


def _line(**entry: Any) -> bytes:
    return json.dumps(entry).encode() + b"\n"


def _write_all(data: bytes) -> None:
    while data:
        data = data[os.write(sys.stdout.fileno(), data) :]


def _stop(signum: int, frame: FrameType | None) -> None:
    raise CopyError("the session ended")


def _raise(error: OSError) -> None:
    raise error
