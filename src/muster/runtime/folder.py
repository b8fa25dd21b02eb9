"""A worker's folder on disk: its lock, its control block, and files that are written atomically."""

from __future__ import annotations

import contextlib
import fcntl
import json
import mmap
import os
import struct
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from muster import wire
from muster.runtime import processes

RESERVE_BYTES: Final = 64 << 10  # reserved, so that the exit can be written on a full disk


def write_whole(path: Path, data: bytes) -> None:
    """Replaces a file atomically, readable only by its owner.
    After a power failure it has the old or the new content."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        with os.fdopen(fd, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(fd)
        draft.replace(path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


class Folder:
    """The files of one worker, as its launcher uses them."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.isolated = False  # the ranks are isolated and may write only to parts of it
        self._lock = -1
        self._control: mmap.mmap | None = None

    def launch(self) -> wire.Launch:
        return wire.Launch.from_json((self.path / "launch.json").read_text())

    def lock(self, patience: float = 0.0) -> bool:
        """False when another launcher runs here. The lock is released when the process ends, however it ends.

        `patience`: seconds to try again. A rank that a killed launcher had just forked holds the lock for a moment,
        until it has become its program.
        """
        self._lock, until = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT, 0o600), time.monotonic() + patience
        while True:
            try:
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return True
            except BlockingIOError:
                if time.monotonic() >= until:
                    return False
                time.sleep(0.01)

    def started(self) -> bool:
        return (self.path / "launcher.json").exists()

    def write_identity(self) -> None:
        found = processes.stat(os.getpid())
        ticks = found.start_ticks if found else 0
        self._write_json("launcher.json", {"pid": os.getpid(), "start_ticks": ticks, "boot_id": processes.boot_id()})

    def prepare(self) -> None:
        """Creates what a rank needs before it starts: the control block, the package link and the reserve."""
        (self.path / "control").write_bytes(bytes(wire.CONTROL_BYTES))
        with (self.path / "control").open("r+b") as file:
            self._control = mmap.mmap(file.fileno(), wire.CONTROL_BYTES)
        self.package_dir.mkdir(exist_ok=True)
        package = Path(wire.__file__).resolve().parent
        for name, target in (("muster", package), ("sitecustomize.py", package / "runtime" / "rank_site.py")):
            link = self.package_dir / name
            if not link.is_symlink():
                link.symlink_to(target)
        (self.path / "control").chmod(0o644)  # ranks with another user read it too
        (self.path / "reserve").write_bytes(bytes(RESERVE_BYTES))

    @property
    def package_dir(self) -> Path:
        """Contains only `muster` and `sitecustomize.py` (see `rank_site`), so that the user's environment sees no other
        package of the platform."""
        return self.path / "pkg"

    def rank_dir(self, rank: int) -> Path:
        return self.path / f"rank-{rank}"

    def rank_files_dir(self, rank: int) -> Path:
        """The folder that the rank itself writes to. Nothing in it can block the launcher."""
        return self.rank_dir(rank) / "own" if self.isolated else self.rank_dir(rank)

    def ask_stop(self, deadline: float) -> None:
        """Sets the flag that ranks poll; `deadline` is wall-clock time."""
        if self._control is not None:
            struct.pack_into("<d", self._control, wire.CONTROL_DEADLINE_AT, deadline)
            self._control[wire.CONTROL_STOP_AT] = 1

    def ask_save(self) -> None:
        if self._control is not None:
            self._control[wire.CONTROL_SAVE_AT] = (self._control[wire.CONTROL_SAVE_AT] + 1) % 256

    def keep_steps(self, steps: Sequence[int]) -> None:
        """Names the checkpoints that ranks must not prune."""
        if self._control is not None:
            told = [step + 1 for step in steps][: wire.CONTROL_KEEP_MAX]
            told += [0] * (wire.CONTROL_KEEP_MAX - len(told))
            struct.pack_into(f"<{wire.CONTROL_KEEP_MAX}q", self._control, wire.CONTROL_KEEP_AT, *told)

    def write_command(self, command: wire.Command) -> None:
        with contextlib.suppress(
            OSError
        ):  # for people to read only; a full disk must not prevent the command's execution
            self._write_json("command.json", asdict(command))

    def exit(self) -> wire.WorkerExit | None:
        try:
            return wire.WorkerExit.from_dict(json.loads((self.path / "exit.json").read_text()))
        except FileNotFoundError:
            return None

    def write_exit(self, ended: wire.WorkerExit) -> bool:
        """False when the disk is so full that even freeing the reserve did not help."""
        for _ in range(2):
            try:
                self._write_json("exit.json", ended.to_dict())
                return True
            except OSError:
                (self.path / "reserve").unlink(missing_ok=True)
        return False

    def done(self) -> bool:
        return (self.path / "done").exists()

    def write_done(self) -> None:
        """Marks that the server has everything, so that the folder may be removed."""
        with contextlib.suppress(OSError):
            write_whole(self.path / "done", b"")

    def _write_json(self, name: str, value: dict[str, Any]) -> None:
        write_whole(self.path / name, json.dumps(value).encode())
