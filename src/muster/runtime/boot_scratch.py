"""The worker's folder that `boot` keeps on its node: its creation, transfer and removal."""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from pathlib import Path
from typing import Final

from muster import wire
from muster.runtime import processes
from muster.runtime.boot_gang import BootError, GangFile, WorkerAssignment, worker_name
from muster.runtime.folder import Folder, write_whole

_LEFT_BEHIND: Final = ("code", "pkg", "reserve", "home", "tmp", "work", "snapshots")
SWEEP_AFTER: Final = 7 * 86400.0  # seconds after which the remains of a killed worker are removed from a node


def prepare(gang: GangFile, assignment: WorkerAssignment) -> Path:
    """Creates the worker's folder with its launch.json; an existing one is reused unchanged."""
    if gang.scratch is None:
        folder = gang.folder / f"worker-{assignment.worker}"
    else:
        own_folder(gang.scratch)
        workers = gang.scratch / "workers"
        workers.mkdir(mode=0o700, exist_ok=True)
        _sweep(workers)
        folder = workers / worker_name(gang, assignment.worker)
        os.environ[wire.SCRATCH] = str(gang.scratch)
    _make_checkpoints(gang.launch.checkpoint_dir, assignment.node)
    while True:
        folder.mkdir(mode=0o700, exist_ok=True)
        processes.fault("after_folder")
        try:
            if not (folder / "launch.json").exists():
                write_whole(folder / "launch.json", assignment.launch(gang).to_json().encode())
        except FileNotFoundError:  # another boot has removed it meanwhile, as that of an ended worker
            continue
        processes.fault("after_launch_json")
        return folder


def _make_checkpoints(path: str, node: str) -> None:
    """Creates the checkpoint folder, so that an error shows now and not after hours of work."""
    if "://" in path:
        return
    try:
        Path(path).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BootError(f"the folder for checkpoints can't be made on node {node}: {error}") from error


def own_folder(path: Path) -> None:
    """Creates the folder if missing, for this user only; refuses one of another user."""
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = path.lstat()
    if path.is_symlink() or found.st_uid not in (os.geteuid(), 0):
        raise BootError(f"the scratch folder {path} belongs to user {found.st_uid}, or is a link: choose another")


def leave(folder: Path, shared: Path) -> None:
    """Removes a worker's folder from its node.
    What the server lacks is moved to `shared`, from where it can be reported."""
    if not folder.exists():
        return
    if not Folder(folder).done():
        try:
            _carry(folder, shared)
        except (OSError, shutil.Error) as error:
            processes.log_line(f"what the server lacks stays on this node, in {folder}: {error}")
            return
    discard(folder)


def discard(folder: Path) -> None:
    """Moves the folder away in one step: a half-removed folder would look like a worker that never started."""
    trash = folder.with_name(f".{folder.name}.{os.urandom(4).hex()}")
    with contextlib.suppress(OSError):
        folder.rename(trash)
        processes.fault("after_discarding")
    shutil.rmtree(trash, ignore_errors=True)


def _carry(folder: Path, shared: Path) -> None:
    draft = shared.with_name(f".{shared.name}.{os.urandom(4).hex()}")
    try:
        shutil.copytree(folder, draft, symlinks=True, ignore=shutil.ignore_patterns(*_LEFT_BEHIND))
        processes.fault("after_carrying")
        draft.rename(shared)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _sweep(workers: Path) -> None:
    """Removes old folders that no launcher uses; errors are ignored."""
    for folder in workers.iterdir():
        with contextlib.suppress(OSError):
            if time.time() - folder.stat().st_mtime > SWEEP_AFTER and Folder(folder).lock():
                shutil.rmtree(folder, ignore_errors=True)
