"""The server's clock: wall time that never jumps and never runs behind what the log has already said."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    def now(self) -> float:
        """Seconds, UTC."""


class SteadyClock:
    """Reads the wall once and the monotonic clock from then on, so that a set clock moves no deadline.

    After a restart on a machine whose clock went back, it goes on from the last event's time.
    """

    def __init__(self) -> None:
        self._offset = time.time() - time.monotonic()

    def catch_up(self, last: float) -> None:
        """Never reads earlier than `last`, the time of the newest event."""
        self._offset = max(self._offset, last - time.monotonic())

    def now(self) -> float:
        return time.monotonic() + self._offset
