"""Files that a rank gives to the platform: kept in its folder in their current state, for the launcher to ship.

A small file is copied at once; one on the same disk is cloned or hard-linked; any other is copied by a thread from an
open descriptor. So the caller may continue, replace it or remove it, and a killed rank loses no linked file. The thread
also copies linked files, because many programs write their next file to the same place.

The folder has two files for each one: `ID.json`, a note with the document that will name it, and `ID.data`, the
content.
"""

from __future__ import annotations

import atexit
import fcntl
import json
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, Final

from muster.runtime import processes
from muster.runtime.checks import check_keys, short
from muster.runtime.plain import plain, text
from muster.runtime.rank_info import warn
from muster.runtime.reporter import Reporter, shared

SMALL: Final = 256 << 10  # bytes that are copied while the caller waits: a fraction of a millisecond
COPIED_MAX: Final = 1 << 30  # bytes; a larger file is only hard-linked
FOLDER_MAX: Final = 10_000  # files
PATH_MAX: Final = 1000  # bytes
PART_MAX: Final = 255  # bytes
EXIT_PATIENCE: Final = 120.0  # seconds that the process's exit waits for its copies
_HELD_MAX: Final = 64  # descriptors and results that wait for the thread; beyond that the caller does the work itself
_FICLONE: Final = 0x40049409
_CHUNK: Final = 8 << 20


@dataclass
class Files:
    """Keeps the files of one reporter; one thread, started on demand, does the slow work."""

    reporter: Reporter
    _waiting: deque[Callable[[], None]] = field(default_factory=deque)
    _wake: threading.Condition = field(default_factory=threading.Condition)
    _busy: bool = False
    _process: int = 0  # the process that owns the thread; a forked child reports nothing and needs none

    def artifact(self, path: str | os.PathLike[str], name: str | None = None, kind: str = "file", **about: Any) -> None:
        """Keeps a file, or every file of a folder, with the run: `artifact("out/model.pt", "models/last.pt")`.

        `name` is its path there; the same name again replaces it. It costs about 0.1 ms per file.
        """
        source = Path(path)
        check_keys("artifact()", {kind: None})
        root = source.name if name is None else os.fspath(name)
        if source.is_dir():
            found = list(_below(source, root))
        elif source.is_file():
            found = [(source, root)]
        else:
            raise FileNotFoundError(f"artifact(): {os.fspath(path)!r} is no file and no folder. Save it first.")
        for _, target in found:
            check_path(target)
        for each, target in found:
            self.give(each, {"type": "artifact", "path": target, "kind": kind, "about": plain(about)})

    def give(self, source: Path, doc: dict[str, Any]) -> None:
        """Keeps a file for shipping, named by `doc`. A full disk leads to a warning, not to an error."""
        fd = os.open(source, os.O_RDONLY)
        place = self.reporter.place()
        if place is None:
            os.close(fd)
        else:
            with self._errors_reported(doc):
                _keep(_files_of(place), source, fd, doc, self.later)

    def give_bytes(self, data: bytes, doc: dict[str, Any]) -> None:
        """The same with the content given."""
        place = self.reporter.place()
        if place is not None:
            with self._errors_reported(doc):
                keep_bytes(place, data, doc)

    def later(self, work: Callable[[], None]) -> None:
        """Queues work for the thread; the caller does it itself when much is waiting."""
        with self._wake:
            if self._process != os.getpid():
                self._process = os.getpid()
                threading.Thread(target=self._run, name="muster-files", daemon=True).start()
                atexit.register(self.flush)
            if len(self._waiting) < _HELD_MAX:
                self._waiting.append(work)
                self._wake.notify_all()
                return
        _do(work)

    def flush(self, patience: float = EXIT_PATIENCE) -> bool:
        """Waits until the thread has nothing to do; returns False on timeout. Also called at exit."""
        if self._process != os.getpid():
            return True
        with self._wake:
            done = self._wake.wait_for(lambda: not self._waiting and not self._busy, patience)
        if not done:
            warn(f"{len(self._waiting)} files were not kept: copying them took more than {patience:g} s.")
        return done

    @contextmanager
    def _errors_reported(self, doc: dict[str, Any]) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            text = f"{doc['type']} {doc.get('path') or doc.get('name')!r} is not recorded: it can't be kept: {error}"
            warn(f"{text}.")
            self.reporter.note(text)

    def _run(self) -> None:
        while True:
            with self._wake:
                self._busy = False
                self._wake.notify_all()
                self._wake.wait_for(lambda: self._waiting)
                work = self._waiting.popleft()
                self._busy = True
            _do(work)


def keep_bytes(place: Path, data: bytes, doc: dict[str, Any]) -> None:
    """Keeps content for shipping in a rank's folder, named by `doc`. Raises OSError."""
    folder, mark = _files_of(place), _mark()
    (folder / f"{mark}.data").write_bytes(data)
    _write_note(folder, mark, doc, {})


def check_path(path: str) -> None:
    """Raises ValueError for an invalid path of an artifact."""
    parts = path.split("/")
    wrong = (
        not path
        or path != text(path)
        or "\\" in path
        or any(part in ("", ".", "..") or len(part.encode()) > PART_MAX for part in parts)
        or len(path.encode()) > PATH_MAX
    )
    if wrong:
        raise ValueError(
            f"artifact(): the name {short(path)} can't be stored; expected a relative path without '..', backslash or "
            f"NUL, parts of {PART_MAX} bytes and {PATH_MAX} in all at most. Give another `name`."
        )


def _below(folder: Path, root: str) -> Iterator[tuple[Path, str]]:
    """The files of a folder with their names; links are followed if they lead to files."""
    count = 0
    for parent, folders, names in os.walk(folder):
        folders.sort()
        for name in sorted(names):
            count += 1
            if count > FOLDER_MAX:
                raise ValueError(f"artifact(): {folder} has more than {FOLDER_MAX} files. Pack them into an archive.")
            path = Path(parent, name)
            if path.is_file():
                yield path, str(PurePosixPath(root) / path.relative_to(folder).as_posix())


def _files_of(place: Path) -> Path:
    folder = place / "files"
    folder.mkdir(exist_ok=True)
    return folder


def _keep(
    folder: Path, source: Path, fd: int, doc: dict[str, Any], later: Callable[[Callable[[], None]], None]
) -> None:
    mark = _mark()
    data, note = folder / f"{mark}.data", folder / f"{mark}.json"
    found = os.fstat(fd)
    try:
        if found.st_size <= SMALL:
            _copy(fd, data)
        whole = found.st_size <= SMALL or _clone(fd, data)
        linked = whole or _link(source, data)
        seen = {"source": str(source.absolute()), "size": found.st_size, "mtime_ns": found.st_mtime_ns}
        _write_note(folder, mark, doc, {} if whole else {**seen, **({} if linked else _copying())})
    except BaseException:
        data.unlink(missing_ok=True)
        os.close(fd)
        raise
    if whole or (linked and found.st_size > COPIED_MAX):
        os.close(fd)
        return

    def copy() -> None:
        try:
            _copy(fd, data)
            if not note.exists():  # the launcher has shipped the link meanwhile
                data.unlink(missing_ok=True)
        finally:
            os.close(fd)

    later(copy)


def _clone(fd: int, target: Path) -> bool:
    """A copy that shares its blocks until one of the two is changed, if the file system supports it."""
    draft = target.with_suffix(".part")
    out = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        fcntl.ioctl(out, _FICLONE, fd)
        draft.rename(target)
    except OSError:
        draft.unlink(missing_ok=True)
        return False
    finally:
        os.close(out)
    return True


def _copy(fd: int, target: Path) -> None:
    draft = target.with_suffix(".part")
    out = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        at = 0
        while sent := os.sendfile(out, fd, at, _CHUNK):
            at += sent
        draft.rename(target)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
    finally:
        os.close(out)


def _link(source: Path, target: Path) -> bool:
    try:
        os.link(source, target)
    except OSError:  # another disk, or a file that the kernel does not let us link
        return False
    return True


def _copying() -> dict[str, Any]:
    """The process that still has to copy the file: if it is gone, only the source is left."""
    found = processes.stat(os.getpid())
    return {"pid": os.getpid(), "start_ticks": found.start_ticks if found else 0}


def _mark() -> str:
    """A unique id; ids sort in the order of the calls."""
    return f"{time.time_ns():020d}-{os.urandom(4).hex()}"


def _write_note(folder: Path, mark: str, doc: dict[str, Any], more: dict[str, Any]) -> None:
    draft = folder / f".{mark}"
    draft.write_text(json.dumps({"doc": {"id": mark, "time": time.time(), **doc}, **more}))
    draft.rename(folder / f"{mark}.json")


def _do(work: Callable[[], None]) -> None:
    try:
        work()
    except Exception as error:  # mostly a full disk; training continues
        warn(f"a file or medium is not recorded: {error!r}.")


shared_files: Final = Files(shared)
artifact = shared_files.artifact
