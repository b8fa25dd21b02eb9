"""How long jobs waited for what was their queue's own: a stretch in which the job and all that its queue ran would have
been within the quota together.

Jobs of one size in one queue are within it or beyond it at the same times, so these times are kept once for all of
them, and only while one of them waits. Looked at is the end of every instant: what is given and taken within one lasts
no time.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from math import inf

from muster.core.rules import Rules
from muster.sim.model import PoolShape, TraceJob


@dataclass(slots=True)
class Alike:
    """Jobs of one queue and size that wait, with the stretches in which their queue had room for one more of them."""

    queue: str
    pools: tuple[str, ...]  # that may take them
    size: int  # accelerators
    waiting: int = 0
    since: float = inf  # when the stretch began that goes on; inf when there is no room
    # Past stretches in the order of time. One that a later stretch outlasts is of no use: whoever waited through some
    # of it waited through all of the later one. So their lengths fall.
    _begins: list[float] = field(default_factory=list)
    _lengths: list[float] = field(default_factory=list)

    def close(self, now: float) -> None:
        """The stretch ends."""
        begin, length = self.since, now - self.since
        self.since = inf
        while self._lengths and self._lengths[-1] <= length:
            self._begins.pop()
            self._lengths.pop()
        self._begins.append(begin)
        self._lengths.append(length)

    def longest(self, since: float, now: float) -> float:
        """Of the stretches from `since` to `now`, of which the first may have begun before."""
        found = max(now - max(self.since, since), 0.0)
        place = bisect_left(self._begins, since)
        if place < len(self._lengths):
            found = max(found, self._lengths[place])
        if place:
            found = max(found, self._begins[place - 1] + self._lengths[place - 1] - since)
        return found


class Owed:
    """The waits of one simulation. Without quotas there is nothing to do."""

    def __init__(self, rules: Rules, pools: Iterable[PoolShape]) -> None:
        self._rules, self._pools = rules, tuple(pools)
        self._used: Counter[tuple[str, str]] = Counter()  # (queue, pool) → accelerators, of queues within it too
        self._lineages: dict[str, tuple[str, ...]] = {}
        self._alike: defaultdict[str, dict[tuple[str, str, int, str], Alike]] = defaultdict(dict)  # by topmost queue
        self._changed: set[str] = set()  # topmost queues
        self._any = any(rule.quota for rule in (rules.defaults, *rules.queues.values()))

    def wait(self, queue: str, pool: str, job: TraceJob) -> Alike | None:
        """The job begins to wait; `pool` is the one that it is bound to, or "". None where nothing is its own."""
        if not self._any or not job.size:
            return None
        top = self._lineage(queue)[-1]
        key = (queue, pool, job.size, job.accelerator)
        alike = self._alike[top].get(key)
        if alike is None:
            alike = self._alike[top][key] = Alike(queue, self._takers(pool, job.accelerator), job.size)
        alike.waiting += 1
        self._changed.add(top)
        return alike

    def start(self, alike: Alike, since: float, now: float) -> float:
        """One of them has waited since then and starts now: its longest stretch."""
        alike.waiting -= 1
        self._changed.add(self._lineage(alike.queue)[-1])
        return alike.longest(since, now)

    def change(self, queue: str, pool: str, accelerators: int) -> None:
        """The queue has so many more of the pool, or fewer (less than 0)."""
        if self._any:
            lineage = self._lineage(queue)
            for name in lineage:
                self._used[name, pool] += accelerators
            self._changed.add(lineage[-1])

    def settle(self, now: float) -> None:
        """The instant is over."""
        for top in self._changed:
            there = self._alike[top]
            for key, alike in list(there.items()):
                if not alike.waiting:
                    del there[key]
                elif self._room(alike) < alike.size:
                    if alike.since < inf:
                        alike.close(now)
                elif alike.since == inf:
                    alike.since = now
        self._changed.clear()

    def _room(self, alike: Alike) -> int:
        """Accelerators that the queue, or one that it sits in, could still take as its own in one pool."""
        names = self._lineage(alike.queue)
        rooms = (
            self._rules.queue(name).quota.get(pool, 0) - self._used[name, pool]
            for name in names
            for pool in alike.pools
        )
        return max(rooms, default=0)

    def _takers(self, bound: str, accelerator: str) -> tuple[str, ...]:
        return tuple(
            pool.name
            for pool in self._pools
            if bound in ("", pool.name) and pool.accelerators and accelerator in ("", pool.accelerator)
        )

    def _lineage(self, queue: str) -> tuple[str, ...]:
        found = self._lineages.get(queue)
        if found is None:
            found = self._lineages[queue] = tuple(self._rules.lineage(queue))
        return found
