"""The server's clock: wall time that never jumps and is never earlier than the newest event of the log."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    def now(self) -> float:
        """Seconds, UTC."""


class SteadyClock:
    """Reads the wall clock once and the monotonic clock from then on, so setting the system clock moves no deadline.

    After a restart on a machine whose clock was set back, it continues from the time of the last event.
    """

    def __init__(self) -> None:
        self._offset = time.time() - time.monotonic()

    def catch_up(self, last: float) -> None:
        """Makes sure that the clock never returns a time before `last`, the time of the newest event."""
        self._offset = max(self._offset, last - time.monotonic())

    def now(self) -> float:
        return time.monotonic() + self._offset
