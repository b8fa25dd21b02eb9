"""What a launcher sees of its ranks beside their reports: CPU time, I/O, process states, accelerators, collectives.

The server tells a hang from slow work by it. The cost of a look is proportional to the worker's processes, and the
interval grows with the cost.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from muster import wire
from muster.runtime import processes
from muster.runtime.collective_counts import CollectiveCounts

EVERY: Final = 1.5  # seconds, so that every heartbeat has one
SHARE: Final = 200  # the time between two looks is at least this many times a look's cost
_TICK: Final = 1 / os.sysconf("SC_CLK_TCK")  # seconds

Devices = Callable[[int], tuple[float, float] | None]  # of a rank: use 0..1 and power in W, if they are known
Ends = Callable[[int, wire.Stream], int]  # the length of a stream of a rank


class PulseTaker:
    """Takes the pulses of a worker's ranks; for one thread."""

    def __init__(self, roots: Mapping[int, int], devices: Devices, folders: Mapping[int, Path]) -> None:
        self._roots = dict(roots)  # rank → its first process
        self._devices = devices
        self._folders = dict(folders)  # rank → the folder that it writes to
        self._collectives = CollectiveCounts()
        self._next = 0.0  # monotonic

    def take(self, ends: Ends) -> tuple[wire.Pulse, ...]:
        """A pulse for each living rank; none if the last ones were taken a moment ago."""
        now = time.monotonic()
        if now < self._next or not self._roots:
            return ()
        cost = time.thread_time()
        found = [self._of(rank, root, ends) for rank, root in self._roots.items()]
        self._next = now + max(EVERY, SHARE * (time.thread_time() - cost))
        return tuple(pulse for pulse in found if pulse is not None)[: wire.PULSES_MAX]

    def _of(self, rank: int, root: int, ends: Ends) -> wire.Pulse | None:
        cpu, io, running, main = 0.0, 0, False, (-1.0, root, "")
        for pid in (root, *processes.descendants(root)):
            raw = processes.read(f"/proc/{pid}/stat")
            if not raw:
                continue
            fields = raw[raw.rindex(b")") + 2 :].split()
            used = sum(map(int, fields[11:15])) * _TICK  # of itself and of its ended children
            state = fields[0].decode()
            cpu, io, running = cpu + used, io + _traffic(pid), running or state == "R"
            own = (int(fields[11]) + int(fields[12])) * _TICK
            main = max(main, (own, pid, state))
        if not main[2]:
            return None
        use, power = self._devices(rank) or (None, None)
        place = processes.read(f"/proc/{main[1]}/wchan").decode(errors="replace").strip("\0 \n")
        return wire.Pulse(
            rank,
            ends(rank, "spool"),
            ends(rank, "log"),
            cpu,
            io,
            "R" if running else main[2],
            "" if place == "0" else place,
            use,
            power,
            self._collectives.read(self._folders[rank]),
        )


def _traffic(pid: int) -> int:
    """Bytes that the process has read and written, also of pipes and of files in memory; 0 if the kernel won't say."""
    return sum(int(line.split()[1]) for line in processes.read(f"/proc/{pid}/io").splitlines()[:2])
