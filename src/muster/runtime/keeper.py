"""The process that holds a worker's place on its node:
if it ends, the worker must end too, as others may get its resources."""

from __future__ import annotations

import os
import select
from contextlib import suppress

from muster.runtime import processes


class Keeper:
    """`fd` becomes readable when the process ends; -1 when there is none, or it has ended before."""

    def __init__(self, process: tuple[int, int] | None) -> None:
        self.fd = -1
        self._process = process

    def open(self) -> None:
        if self._process is None:
            return
        pid, start_ticks = self._process
        with suppress(ProcessLookupError, FileNotFoundError):
            self.fd = os.pidfd_open(pid)
        # Check while the pidfd is held, so that the process id can't be reused in between.
        found = processes.stat(pid)
        if self.fd >= 0 and (found is None or found.start_ticks != start_ticks):
            os.close(self.fd)
            self.fd = -1

    def gone(self) -> bool:
        """Whether there was one, and it has ended."""
        if self._process is None:
            return False
        if self.fd < 0:
            return True
        poll = select.poll()
        poll.register(self.fd, select.POLLIN)
        return bool(poll.poll(0))
