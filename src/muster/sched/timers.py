"""When time alone changes a job's position: one timer for each job, in one heap for each pool."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from heapq import heappop, heappush
from math import inf

QUEUED = ""  # the heap of queued jobs. Running gangs are under their pool: they matter only if a job waits for it


@dataclass(slots=True)
class Timers:
    _heaps: defaultdict[str, list[tuple[float, str]]] = field(default_factory=lambda: defaultdict(list))
    _due: dict[str, float] = field(default_factory=dict)  # job → its valid timer; other entries of the heaps are stale

    def set(self, name: str, at: float, pool: str = QUEUED) -> None:
        if at < inf and self._due.get(name) != at:
            self._due[name] = at
            heappush(self._heaps[pool], (at, name))

    def cancel(self, name: str) -> None:
        self._due.pop(name, None)

    def pop_due(self, pool: str, now: float, into: dict[str, None]) -> None:
        """Moves the jobs whose timers are due into `into`."""
        heap = self._heaps[pool]
        while heap and heap[0][0] <= now:
            at, name = heappop(heap)
            if self._due.get(name) == at:
                del self._due[name]
                into[name] = None

    def any_due(self, pool: str, now: float) -> bool:
        """Whether a timer, possibly a stale one, is due."""
        heap = self._heaps[pool]
        return bool(heap) and heap[0][0] <= now

    def first(self, pools: Iterable[str]) -> float:
        """The earliest valid timer of these heaps; inf when there is none."""
        found = inf
        for pool in pools:
            if heap := self._heaps[pool]:
                while heap and self._due.get(heap[0][1]) != heap[0][0]:
                    heappop(heap)
                if heap and heap[0][0] < found:
                    found = heap[0][0]
        return found
