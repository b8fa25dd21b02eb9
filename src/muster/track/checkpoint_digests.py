"""SHA-256 of the files of a checkpoint in a run's own folder on the server's machine.

The run's processes may write there, perhaps at the same time and with bad intent: no link is followed, nothing but
regular files is read, and only what the manifest names.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
from pathlib import Path
from typing import Any, Final

from muster.core.errors import Invalid
from muster.track.paths import check_path

MANIFEST: Final = "manifest.json"
_MANIFEST_BYTES: Final = 64 << 20
_FILES_MAX: Final = 100_000
_BLOCK: Final = 4 << 20
_HINT: Final = "Upload it, and register that: `muster runs artifacts RUN put FOLDER --kind checkpoint`."


def hash_checkpoint(folder: Path, path: str) -> dict[str, str]:
    """Path relative to the checkpoint → SHA-256, also of the manifest itself.

    `folder`: the run's checkpoints. Raises Invalid for a checkpoint that is not a whole one directly in it.
    """
    if Path(path).parent != folder:
        raise Invalid(f"The server can't read the checkpoint at {path[:200]}.", _HINT)
    opened = _open_folder(folder, Path(path).name)
    try:
        raw, digest = _read(opened, MANIFEST, _MANIFEST_BYTES, keep=True)
        found = {MANIFEST: digest}
        for name, size in _sizes(raw).items():
            found[name] = _read(opened, name, size)[1]
        return found
    finally:
        os.close(opened)


def _open_folder(folder: Path, name: str) -> int:
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
    try:
        above = os.open(folder, flags)
        try:
            return os.open(check_path(name), flags, dir_fd=above)
        finally:
            os.close(above)
    except OSError as error:
        raise Invalid(f"The server can't read the checkpoint {folder / name}: {error.strerror}.", _HINT) from None


def _sizes(raw: bytes) -> dict[str, int]:
    try:
        files: Any = json.loads(raw)["files"]
        found = {check_path(str(name)): int(entry["bytes"]) for name, entry in files.items()}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, Invalid):
        raise Invalid(f"The checkpoint's {MANIFEST} can't be read.", _HINT) from None
    if len(found) > _FILES_MAX:
        raise Invalid(f"The checkpoint has {len(found):,} files; at most {_FILES_MAX:,} are read.", _HINT)
    return found


def _read(folder: int, name: str, most: int, keep: bool = False) -> tuple[bytes, str]:
    """Content, if it is to be kept, and digest. `most`: bytes that the file has, or may have if it is kept."""
    parts = name.split("/")
    place, opened = folder, list[int]()
    try:
        for part in parts[:-1]:
            place = os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=place)
            opened.append(place)
        file = os.open(parts[-1], os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=place)
        opened.append(file)
        about = os.fstat(file)
        if not stat.S_ISREG(about.st_mode) or about.st_size > most or (not keep and about.st_size != most):
            raise Invalid(f"{name} of the checkpoint is not the file that was saved.", _HINT)
        return _digest(file, most, keep)
    except OSError as error:
        raise Invalid(f"{name} of the checkpoint can't be read: {error.strerror}.", _HINT) from None
    finally:
        for one in opened:
            os.close(one)


def _digest(file: int, most: int, keep: bool) -> tuple[bytes, str]:
    found, kept, size = hashlib.sha256(), list[bytes](), 0
    while block := os.read(file, min(_BLOCK, most - size + 1)):
        size += len(block)
        if size > most:
            raise Invalid("A file of the checkpoint grew while it was read.", _HINT)
        found.update(block)
        if keep:
            kept.append(block)
    return b"".join(kept), found.hexdigest()
