"""What an archive of the package runs first: unpacks it once a node, and goes on from there.

Python imports from an archive, but slowly, and ranks need files. Next to nothing of the package is imported before.
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
    """`muster.runtime.boot` with the same words, from files."""
    archive = Path(sys.argv[0])
    if not zipfile.is_zipfile(archive):  # a folder: here are the files
        from muster.runtime.boot import main as boot  # noqa: PLC0415  (the archive must not import it)

        return boot()
    # Across exec: a signal that comes early must neither kill nor be lost; `boot` knows what to do with it.
    signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGURG))
    place = unpack(archive, _base(sys.argv[1:]))
    os.execv(sys.executable, [sys.executable, "-P", str(place), *sys.argv[1:]])  # noqa: S606


def unpack(archive: Path, base: Path) -> Path:
    """Where its files are: whole or not there, for this user alone."""
    base.mkdir(mode=0o700, parents=True, exist_ok=True)
    place = base / "pkg" / hashlib.sha256(archive.read_bytes()).hexdigest()[:16]
    if not place.is_dir():
        draft = place.with_name(f".{place.name}.{os.urandom(4).hex()}")
        with zipfile.ZipFile(archive) as content:
            content.extractall(draft)
        processes.fault("after_unpacking")
        try:
            draft.rename(place)
        except OSError:
            if not place.is_dir():  # another was first
                raise
        shutil.rmtree(draft, ignore_errors=True)
    return place


def _base(words: list[str]) -> Path:
    """The node's scratch folder that gang.json names, else the gang's own."""
    folder = Path(next((word for word in words[1:] if not word.startswith("-")), "."))
    try:
        scratch = os.path.expandvars(str(json.loads((folder / "gang.json").read_text()).get("scratch", "")))
    except (OSError, ValueError, AttributeError):
        scratch = ""
    return Path(scratch) if scratch.startswith("/") and "$" not in scratch else folder
