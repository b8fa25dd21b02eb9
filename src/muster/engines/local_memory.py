"""The folders in this machine's memory in which jobs keep their last state between attempts, one for each job."""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from typing import Final

SHARED_MEMORY: Final = Path("/dev/shm")  # noqa: S108  (a folder of its own below it, which only its owner can read)


class MemoryFolders:
    """The folders of one server's jobs, below one that is named by its home and belongs to its user."""

    def __init__(self, root: Path, shared: Path = SHARED_MEMORY) -> None:
        mark = hashlib.sha256(os.fsencode(root.resolve())).hexdigest()[:12]
        self._home = shared / f"muster-{os.geteuid()}-{mark}"

    def create(self, job: str) -> str:
        """The folder of a job; "" if it can't be had, or if another user could read it."""
        place = self._home / job
        with suppress(OSError):
            for folder in (self._home, place):
                with suppress(FileExistsError):
                    folder.mkdir(mode=0o700)
                status = folder.lstat()  # a user of the machine may have made something of this name before
                if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & 0o077:
                    return ""
            return str(place)
        return ""

    def jobs(self) -> Collection[str]:
        """The jobs that have one."""
        try:
            return os.listdir(self._home)  # noqa: PTH208  (names alone, in every tick)
        except OSError:
            return ()

    def remove(self, job: str) -> None:
        shutil.rmtree(self._home / job, ignore_errors=True)
        with suppress(OSError):  # others have one
            self._home.rmdir()
