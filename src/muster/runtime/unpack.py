"""The entry point of the package's archive: unpacks it once per node, and goes on from there, in the same process.

Python can import from an archive, but slowly, and ranks need files. Nothing else of the package is imported before:
every process that imports a module from an archive compiles it, but for those of `package.FROM_ARCHIVE`.
"""

from __future__ import annotations

import gc
import hashlib
import json
import os
import shutil
import signal
import sys
from importlib import import_module
from pathlib import Path
from typing import NoReturn

USAGE = "usage: python -m muster.runtime.boot slurm|kubernetes FOLDER [--recover]"
INSIDE = "inside.zip"  # the archive with everything that is not imported from this one
FAULT = "MUSTER_FAULT_LAUNCHER"  # as in `muster.runtime.processes`


def run() -> NoReturn:
    """Runs `main` and leaves with its status. Nothing is left to clean up: Python would take a sixth of the time that a
    short worker takes altogether to take its modules apart."""
    status = main()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def main() -> int:
    """Runs `muster.runtime.boot` with the same arguments, from files."""
    archive, folder = Path(sys.argv[0]), _folder(sys.argv[1:])
    if archive.is_file() and folder is None:
        sys.stderr.write(f"{USAGE}\n")
        return 2
    if folder is not None and archive.is_file():  # else it is unpacked already
        # An early signal must neither kill the process nor be lost; `boot` handles it.
        signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGURG))
        _import_from(unpack(archive, _base(folder)))
    gc.disable()  # what is imported stays to the end: the collector need not look through it, now or later
    from muster.runtime.boot import main as boot  # noqa: PLC0415  (the archive must not import it)

    gc.freeze()
    gc.enable()
    return boot()


def unpack(archive: Path, base: Path) -> Path:
    """Unpacks the archive and returns the folder: complete or not at all, for this user only."""
    base.mkdir(mode=0o700, parents=True, exist_ok=True)
    if base.is_symlink() or base.lstat().st_uid not in (os.geteuid(), 0):
        raise SystemExit(f"muster: the folder {base} belongs to another user, or is a link: nothing is run from there")
    place = base / "pkg" / hashlib.sha256(archive.read_bytes()).hexdigest()[:16]
    if not place.is_dir():
        draft = place.with_name(f".{place.name}.{os.urandom(4).hex()}")
        opened = import_module("zipfile").ZipFile  # only the first process of a node needs it
        with opened(archive) as outside, opened(import_module("io").BytesIO(outside.read(INSIDE))) as inside:
            outside.extractall(draft, [name for name in outside.namelist() if name != INSIDE])
            inside.extractall(draft)
        if os.environ.get(FAULT) == "after_unpacking":
            os.kill(os.getpid(), signal.SIGKILL)
        try:
            draft.rename(place)
        except OSError:
            if not place.is_dir():  # another process was first
                raise
        shutil.rmtree(draft, ignore_errors=True)
    return place


def _import_from(place: Path) -> None:
    """Lets Python forget the archive: what is imported from now on is read from the folder."""
    sys.path[0] = sys.argv[0] = str(place)
    for name in [name for name in sys.modules if name.split(".")[0] == "muster"]:
        del sys.modules[name]


def _folder(words: list[str]) -> Path | None:
    """The gang's folder, from the arguments of `boot`."""
    plain = [word for word in words if not word.startswith("-")]
    return Path(plain[1]) if len(plain) > 1 else None


def _base(folder: Path) -> Path:
    """The node's scratch folder from gang.json, else the gang's own."""
    try:
        scratch = os.path.expandvars(str(json.loads((folder / "gang.json").read_text()).get("scratch", "")))
    except (OSError, ValueError, AttributeError):
        scratch = ""
    return Path(scratch) if scratch.startswith("/") and "$" not in scratch else folder
