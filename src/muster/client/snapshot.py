"""The snapshot of the code that a job is submitted with: commit, changes, and every file of its workdir by digest.

It never fails a submission: what could not be captured is listed in `notes`. Digests are cached by size and times, so
that the second snapshot of a folder only needs the status of its files.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import gettempdir
from typing import Any, Final

from muster.client import git
from muster.client.ignore import MADE, Ignore, looks_secret

FILES_MAX: Final = 10_000
BYTES_MAX: Final = 100_000_000  # of a whole snapshot
FILE_BYTES_MAX: Final = 20_000_000
_TOO_MANY: Final = f"it has more than {FILES_MAX:,} files; list in .musterignore what is no code"
_LOOKED_AT_MAX: Final = 200_000  # maximum directory entries, including ignored ones
_DATABASE: Final = "muster.db"
_NAMED: Final = 10  # files that a note lists by name; more are only counted
_UNSPEAKABLE: Final = re.compile("[\\\\\x00-\x1f\x7f\ud800-\udfff]|^~|^.:")
_RACY: Final = 2_000_000_000  # nanoseconds: a file that was written this recently may change again without a new time

Known = dict[str, list[Any]]  # path → size, mtime, ctime, inode, digest


@dataclass(slots=True)
class Snapshot:
    """`content` has what the server may lack: digest → file, or the bytes."""

    code: dict[str, Any]
    content: dict[str, str | bytes] = field(default_factory=dict)
    paths: dict[str, str] = field(default_factory=dict)  # of its files → digest
    dropped: dict[str, int] = field(default_factory=dict)  # files that are too large → size


class TooMuch(Exception):
    """The folder is too large, or is not a project's folder."""


def take(workdir: Path, cache: Path) -> Snapshot:
    """Scans the folder; sends nothing. `cache` is a folder for known digests."""
    facts = git.look(workdir)
    code = {"commit": facts.commit, "branch": facts.branch, "dirty": facts.dirty, "remote": facts.remote}
    made = Snapshot({**code, "tree": "", "diff": "", "files": 0, "bytes": 0, "notes": facts.notes})
    if facts.diff:
        made.code["diff"] = _keep(made, facts.diff)
    try:
        _take_files(made, workdir, facts, cache)
    except TooMuch as error:
        facts.notes.append(f"the files of {workdir} are left out: {error}")
    except OSError as error:
        facts.notes.append(f"the files of {workdir} are left out: {error.strerror or error}")
    made.code["notes"] = [note.encode("utf-8", "replace").decode()[:500] for note in facts.notes[:100]]
    return made


def _take_files(made: Snapshot, workdir: Path, facts: git.Facts, cache: Path) -> None:
    if workdir in (Path(gettempdir()), Path.home(), *Path.home().parents):
        raise TooMuch("it is everybody's, a home folder or above one; give the job a `workdir` of its own")
    root, notes = str(workdir), facts.notes
    paths = [path for path in _paths(workdir, facts) if not _unspeakable(path, notes)]
    if len(paths) > FILES_MAX:
        raise TooMuch(_TOO_MANY)
    seen = {path: found for path in paths if (found := _look(root, path, notes)) is not None}
    for path in _too_large(seen, notes):
        made.dropped[path] = seen.pop(path).st_size
    book = _Digests(cache, root)
    manifest = {}
    for path, found in seen.items():
        digest = book.of(path, found)
        manifest[path] = [digest, found.st_size, 0o755 if found.st_mode & 0o100 else 0o644]
        made.content[digest] = f"{root}/{path}"
        made.paths[path] = digest
    book.save()
    text = json.dumps(manifest, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
    made.code |= {"tree": _keep(made, text), "files": len(manifest), "bytes": sum(f.st_size for f in seen.values())}


def _paths(workdir: Path, facts: git.Facts) -> list[str]:
    """Sorted paths from the folder. Leaves out ignored files, and files that look like secrets, which are noted."""
    if facts.files:  # none: the repository around it ignores the folder itself
        ignore = Ignore(workdir, (".musterignore",), MADE)
        found = [path for path in facts.files if not ignore.hides(path)]
    else:
        found = sorted(_walk(workdir, Ignore(workdir, (".gitignore", ".musterignore"), MADE)))
    homes = tuple(path.removesuffix(_DATABASE) for path in found if path == _DATABASE or path.endswith(f"/{_DATABASE}"))
    secret = [path for path in found if looks_secret(path) or path.startswith(homes)]  # a server's home has its keys
    if secret:
        facts.notes.append(f"left out, since they look like secrets: {_some(secret)}")
    hidden = set(secret)
    return [path for path in found if path not in hidden]


def _walk(workdir: Path, ignore: Ignore) -> Iterator[str]:
    left, looked_at, kept = [""], 0, 0
    while left:
        folder = left.pop()
        with os.scandir(workdir / folder) as entries:
            for entry in entries:
                looked_at += 1
                if looked_at > _LOOKED_AT_MAX:
                    raise TooMuch(f"it has more than {_LOOKED_AT_MAX:,} entries; choose a smaller `workdir`")
                path = f"{folder}/{entry.name}" if folder else entry.name
                is_folder = entry.is_dir(follow_symlinks=False)
                if ignore.skips(path, is_folder):
                    continue
                if is_folder:
                    left.append(path)
                    continue
                kept += 1
                if kept > FILES_MAX:  # stop now, without counting the rest
                    raise TooMuch(_TOO_MANY)
                yield path


def _unspeakable(path: str, notes: list[str]) -> bool:
    """Names that a manifest can't hold: bytes that are not text, backslashes and control characters."""
    bad = _UNSPEAKABLE.search(path) is not None or (len(path) > 250 and len(path.encode("utf-8", "replace")) > 1000)
    if bad:
        notes.append(f"left out, since its name can't be kept: {path!r}")
    return bad


def _look(root: str, path: str, notes: list[str]) -> os.stat_result | None:
    """The status of a file; None if it is not a file of this folder. A deleted file is in the diff."""
    full = f"{root}/{path}"
    try:
        found = os.lstat(full)
        if stat.S_ISLNK(found.st_mode):
            inside = os.path.realpath(full).startswith(f"{os.path.realpath(root)}/")
            found = os.stat(full)  # noqa: PTH116  (twice as fast as by way of a Path, and there are thousands)
            if not inside or not stat.S_ISREG(found.st_mode):
                notes.append(f"left out, since it is a link out of the folder or to a folder: {path}")
                return None
    except FileNotFoundError:
        return None
    except OSError as error:
        notes.append(f"left out: {path}: {error.strerror}")
        return None
    if not stat.S_ISREG(found.st_mode):
        notes.append(f"left out, since it is no file (a submodule?): {path}")
        return None
    return found


def _too_large(seen: dict[str, os.stat_result], notes: list[str]) -> list[str]:
    """Files to leave out so that the rest fits: those above the limit, then the largest ones."""
    total, out = sum(found.st_size for found in seen.values()), []
    for path, found in sorted(seen.items(), key=lambda item: -item[1].st_size):
        if found.st_size <= FILE_BYTES_MAX and total <= BYTES_MAX:
            break
        out.append(path)
        total -= found.st_size
    if out:
        each = [f"{path} ({seen[path].st_size / 1e6:.1f} MB)" for path in out]
        notes.append(f"left out, since they are too large: {_some(each)}")
    return out


def _some(paths: list[str]) -> str:
    more = f" and {len(paths) - _NAMED} more" if len(paths) > _NAMED else ""
    return ", ".join(paths[:_NAMED])[:400] + more


def _keep(made: Snapshot, data: bytes) -> str:
    digest = hashlib.sha256(data).hexdigest()
    made.content[digest] = data
    return digest


class _Digests:
    """Digests of the files of one folder, cached as long as size, times and inode stay the same."""

    def __init__(self, cache: Path, root: str) -> None:
        self._root = root
        self._file = cache / f"snapshot-{hashlib.sha256(os.fsencode(root)).hexdigest()[:24]}.json"
        self._known, self._now, self._changed = _load(self._file), dict[str, list[Any]](), False

    def of(self, path: str, found: os.stat_result) -> str:
        state = [found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino]
        known = self._known.get(path)
        if known is not None and known[:4] == state:
            self._now[path] = known
            return str(known[4])
        began = time.time_ns()
        with open(f"{self._root}/{path}", "rb") as file:  # noqa: PTH123  (as above)
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        if began - max(found.st_mtime_ns, found.st_ctime_ns) > _RACY:
            self._now[path] = [*state, digest]
            self._changed = True
        return digest

    def save(self) -> None:
        """If the cache can't be written, the next snapshot is only slower."""
        if not self._changed and len(self._now) == len(self._known):
            return
        temporary = self._file.with_suffix(f".{os.getpid()}")
        try:
            self._file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            temporary.write_text(json.dumps(self._now))
            temporary.replace(self._file)
        except OSError:
            temporary.unlink(missing_ok=True)


def _load(path: Path) -> Known:
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
