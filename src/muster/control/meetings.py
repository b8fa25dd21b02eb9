"""Meetings of a gang's workers before its ranks start, at which its links are measured; see `runtime.link_check`.

Launchers of one gang may start minutes apart. Each says that it is there and asks again until it is told to go on: to
the meeting once all are there, without one if they are not there in time or no node of the gang failed lately.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import Final

from muster.api.worker import MeetReply
from muster.core.errors import Invalid

WAIT: Final = 15.0  # seconds after the first worker in which all must be there
KEPT: Final = 120.0  # seconds; launchers ask for a shorter time
AGAIN: Final = (0.25, 1.0)  # seconds until a worker asks again, at least and at most
REQUESTS: Final = 200.0  # a second of one gang, as far as `AGAIN` allows
_SKIP: Final[MeetReply] = {"answer": "skip", "port": 0, "again": 0.0}


@dataclass(slots=True)
class _Gathering:
    began: float
    workers: dict[int, bool] = field(default_factory=dict)  # those who are there, and whether their node failed lately
    port: int = 0  # where the first one listens
    answer: MeetReply | None = None  # once given, all get the same


class Meetings:
    """In memory: after a restart of the server, those who still ask begin anew. Thread-safe."""

    def __init__(self) -> None:
        self._gatherings: dict[tuple[str, int], _Gathering] = {}
        self._lock = threading.Lock()

    def join(
        self, key: tuple[str, int], size: int, worker: int, late: bool, port: int, sound: bool, now: float
    ) -> MeetReply:
        """What a worker of an attempt of `size` workers is told. `late`: its node failed lately. `port`: where it
        listens, if it is the first one. `sound`: no node of the gang failed lately."""
        if not 0 <= worker < size:
            raise Invalid(f"Attempt {key[0]}/{key[1]} has {size} workers; there is no worker {worker}.")
        with self._lock:
            if key not in self._gatherings:
                self._gatherings = {one: each for one, each in self._gatherings.items() if now - each.began < KEPT}
            found = self._gatherings.setdefault(key, _Gathering(now))
            found.workers[worker] = late
            found.port = port if worker == 0 else found.port
            found.answer = found.answer or _answer(found, size, sound, now)
            again = min(max(AGAIN[0], size / REQUESTS), AGAIN[1])
            return found.answer or {"answer": "wait", "port": 0, "again": again}


def _answer(found: _Gathering, size: int, sound: bool, now: float) -> MeetReply | None:
    if sound or now - found.began >= WAIT:
        return _SKIP
    if len(found.workers) < size:
        return None
    if found.port and any(found.workers.values()):
        return {"answer": "meet", "port": found.port, "again": 0.0}
    return _SKIP
