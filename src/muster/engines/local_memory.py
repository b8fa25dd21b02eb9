"""The folders in this machine's memory in which jobs keep their last state between attempts, one for each job."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from typing import Final

SHARED_MEMORY: Final = Path("/dev/shm")  # noqa: S108  (ranks use what only their user can read)


class MemoryFolders:
    """The folders of one server's jobs, below one that is named by its home and belongs to its user. Ranks make them
    when they first use them; see `runtime.memory_checkpoints`."""

    def __init__(self, root: Path, shared: Path = SHARED_MEMORY) -> None:
        mark = hashlib.sha256(os.fsencode(root.resolve())).hexdigest()[:12]
        self._home = shared / f"muster-{os.geteuid()}-{mark}"

    def place(self, job: str) -> str:
        """The folder of a job."""
        return str(self._home / job)

    def jobs(self) -> Collection[str]:
        """The jobs that have used theirs."""
        try:
            return os.listdir(self._home)  # noqa: PTH208  (names alone, in every tick)
        except OSError:
            return ()

    def remove(self, job: str) -> None:
        shutil.rmtree(self._home / job, ignore_errors=True)
        with suppress(OSError):  # others have one
            self._home.rmdir()
