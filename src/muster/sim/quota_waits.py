"""How long jobs waited although they were within their queue's quota: periods in which the quota would have covered the
job and everything that its queue ran.

Jobs of one size in one queue are within the quota at the same times. So these periods are kept once for all of them,
and only while one of them waits. Only the end of every instant counts: changes within an instant take no time.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from math import inf

from muster.core.rules import Rules
from muster.sim.model import PoolShape, TraceJob


@dataclass(slots=True)
class WaitClass:
    """Waiting jobs of one queue and size, with the periods in which the quota had room for one more of them."""

    queue: str
    pools: tuple[str, ...]  # pools that can run them
    size: int  # accelerators
    waiting: int = 0
    since: float = inf  # start of the current period; inf when there is no room
    # Past periods in order of time. A period is dropped when a later one is at least as long: a job that waited during
    # part of it also waited during all of the later one. So the lengths fall.
    _begins: list[float] = field(default_factory=list)
    _lengths: list[float] = field(default_factory=list)

    def close(self, now: float) -> None:
        """Ends the current period."""
        begin, length = self.since, now - self.since
        self.since = inf
        while self._lengths and self._lengths[-1] <= length:
            self._begins.pop()
            self._lengths.pop()
        self._begins.append(begin)
        self._lengths.append(length)

    def longest(self, since: float, now: float) -> float:
        """The longest period from `since` to `now`. A period that began before `since` counts from `since` on."""
        found = max(now - max(self.since, since), 0.0)
        place = bisect_left(self._begins, since)
        if place < len(self._lengths):
            found = max(found, self._lengths[place])
        if place:
            found = max(found, self._begins[place - 1] + self._lengths[place - 1] - since)
        return found


class QuotaWaits:
    """The waits within quota of one simulation. Does nothing where no queue has a quota."""

    def __init__(self, rules: Rules, pools: Iterable[PoolShape]) -> None:
        self._rules, self._pools = rules, tuple(pools)
        # (queue, pool) → accelerators, including child queues
        self._used: defaultdict[tuple[str, str], float] = defaultdict(float)
        self._lineages: dict[str, tuple[str, ...]] = {}
        self._alike: defaultdict[str, dict[tuple[str, str, int, str], WaitClass]] = defaultdict(dict)
        self._changed: set[str] = set()  # topmost queues
        self._any = any(rule.quota for rule in (rules.defaults, *rules.queues.values()))

    def wait(self, queue: str, pool: str, job: TraceJob) -> WaitClass | None:
        """The job begins to wait; `pool` is the one that it is bound to, or "". None where quotas don't apply to it."""
        if not self._any or not job.size:
            return None
        top = self._lineage(queue)[-1]
        key = (queue, pool, job.size, job.accelerator)
        alike = self._alike[top].get(key)
        if alike is None:
            alike = self._alike[top][key] = WaitClass(queue, self._takers(pool, job.accelerator), job.size)
        alike.waiting += 1
        self._changed.add(top)
        return alike

    def start(self, alike: WaitClass, since: float, now: float) -> float:
        """A job that has waited since `since` starts now. Returns its longest period within quota."""
        alike.waiting -= 1
        self._changed.add(self._lineage(alike.queue)[-1])
        return alike.longest(since, now)

    def change(self, queue: str, pool: str, accelerators: float) -> None:
        """The queue uses `accelerators` more of the pool, or fewer (negative)."""
        if self._any:
            lineage = self._lineage(queue)
            for name in lineage:
                self._used[name, pool] += accelerators
            self._changed.add(lineage[-1])

    def settle(self, now: float) -> None:
        """Ends an instant: begins and ends periods according to the quota use at this time."""
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

    def _room(self, alike: WaitClass) -> float:
        """Accelerators that the queue could still take in one pool within its quota or an ancestor's."""
        names = self._lineage(alike.queue)
        rooms = (
            self._rules.queue(name).quota.get(pool, 0) - self._used[name, pool]
            for name in names
            for pool in alike.pools
        )
        return round(max(rooms, default=0), 6)  # sums of parts are not quite whole

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
