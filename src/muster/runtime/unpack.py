"""The entry point of the package's archive: unpacks it once per node, and runs it from there.

Python can import from an archive, but slowly, and ranks need files. Almost nothing of the package is imported before.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import sys
import zipfile
from pathlib import Path

from muster.runtime import processes


def main() -> int:
    """Runs `muster.runtime.boot` with the same arguments, from files."""
    archive, folder = Path(sys.argv[0]), _folder(sys.argv[1:])
    if folder is None or not zipfile.is_zipfile(archive):  # already unpacked, or no arguments: `boot` handles both
        from muster.runtime.boot import main as boot  # noqa: PLC0415  (the archive must not import it)

        return boot()
    # Across exec: an early signal must neither kill the process nor be lost; `boot` handles it.
    signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGURG))
    place = unpack(archive, _base(folder))
    os.execv(sys.executable, [sys.executable, "-P", str(place), *sys.argv[1:]])  # noqa: S606


def unpack(archive: Path, base: Path) -> Path:
    """Unpacks the archive and returns the folder: complete or not at all, for this user only."""
    base.mkdir(mode=0o700, parents=True, exist_ok=True)
    if base.is_symlink() or base.lstat().st_uid not in (os.geteuid(), 0):
        raise SystemExit(f"muster: the folder {base} belongs to another user, or is a link: nothing is run from there")
    place = base / "pkg" / hashlib.sha256(archive.read_bytes()).hexdigest()[:16]
    if not place.is_dir():
        draft = place.with_name(f".{place.name}.{os.urandom(4).hex()}")
        with zipfile.ZipFile(archive) as content:
            content.extractall(draft)
        processes.fault("after_unpacking")
        try:
            draft.rename(place)
        except OSError:
            if not place.is_dir():  # another process was first
                raise
        shutil.rmtree(draft, ignore_errors=True)
    return place


def _folder(words: list[str]) -> Path | None:
    """The gang's folder, from the arguments of `boot`."""
    plain = [word for word in words if not word.startswith("-")]
    return Path(plain[1]) if len(plain) == 2 else None


def _base(folder: Path) -> Path:
    """The node's scratch folder from gang.json, else the gang's own."""
    try:
        scratch = os.path.expandvars(str(json.loads((folder / "gang.json").read_text()).get("scratch", "")))
    except (OSError, ValueError, AttributeError):
        scratch = ""
    return Path(scratch) if scratch.startswith("/") and "$" not in scratch else folder
