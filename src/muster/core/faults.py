"""Named places where a test can kill the process, to prove that a crash there loses nothing.

With MUSTER_FAULT="store.before_commit:3" set before the process starts, it is killed with SIGKILL the third time that
it arrives at that place: no cleanup, no flush, as when the machine loses power. Without the variable a point costs one
comparison. The places:

    store.before_commit     everything is written and nothing is durable yet
    store.after_commit      everything is durable and no caller has been notified yet
    track.before_verdict    an artifact was scanned and nothing is written yet
"""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass
from itertools import count
from typing import Final

from muster.core.errors import ConfigError

VARIABLE: Final = "MUSTER_FAULT"


@dataclass(frozen=True, slots=True)
class Fault:
    """The place, and the arrival at which the process is killed, counted from 1."""

    name: str
    arrival: int


def point(name: str) -> None:
    """Kills this process here, if the environment variable asks for it."""
    # `count` is thread-safe: each arrival gets its own number.
    if _FAULT is not None and name == _FAULT.name and next(_ARRIVALS) == _FAULT.arrival:
        os.kill(os.getpid(), signal.SIGKILL)


def parse(text: str | None) -> Fault | None:
    """Parses the variable; None when it is empty or not set."""
    if not text:
        return None
    name, _, arrival = text.rpartition(":")
    if not name or not arrival.isascii() or not arrival.isdigit() or int(arrival) < 1:
        raise ConfigError(
            f"{VARIABLE} is {text!r}; expected a place and an arrival, such as `store.before_commit:1`.",
            f"Correct {VARIABLE}, or unset it: it exists for tests only.",
        )
    return Fault(name, int(arrival))


_FAULT: Final = parse(os.environ.get(VARIABLE))
_ARRIVALS: Final = count(1)
