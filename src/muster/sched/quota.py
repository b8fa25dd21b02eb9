"""Quotas along the tree of queues: what each queue owns, what it borrows, and how much it may borrow.

A queue is within its quota if it, or one of its ancestors, uses no more than its quota. Beyond that it borrows what
others leave idle, and gives it back when the owners reclaim it.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

from muster.core.rules import Rules

EPSILON = 1e-6  # accelerators: tolerance, because fractions are added up in floating point


@dataclass(slots=True)
class Quotas:
    rules: Rules = field(default_factory=Rules)
    queues: tuple[str, ...] = ()  # all queues
    used: defaultdict[tuple[str, str], float] = field(default_factory=lambda: defaultdict(float))  # (queue, pool)
    _any: bool | None = None
    _lineages: dict[str, tuple[str, ...]] = field(default_factory=dict)
    _withheld: dict[str, tuple[str, ...]] = field(default_factory=dict)  # pool → queues with a quota that don't lend
    _borrowers: dict[str, dict[str, float]] = field(default_factory=dict)  # cache: pool → queue → accelerators borrowed

    @property
    def any(self) -> bool:
        """Whether any queue has a quota, a borrowing limit, or does not lend."""
        if self._any is None:
            every = (self.rules.defaults, *self.rules.queues.values())
            self._any = any(rule.quota or rule.borrow is not None or not rule.lend for rule in every)
        return self._any

    def change(self, queue: str, pool: str, weight: float) -> None:
        """A gang of the queue took `weight` accelerators of the pool, or gave them back (negative)."""
        self._borrowers.pop(pool, None)
        for name in self.lineage(queue):
            self.used[name, pool] += weight

    def lineage(self, queue: str) -> tuple[str, ...]:
        found = self._lineages.get(queue)
        if found is None:
            found = self._lineages[queue] = tuple(self.rules.lineage(queue))
        return found

    def own(self, queue: str, pool: str) -> float:
        return self.rules.queue(queue).quota.get(pool, 0)

    def headroom(self, queue: str, pool: str) -> float:
        """Accelerators that the queue could still take within its own quota or within that of an ancestor."""
        best, rules, used = 0.0, self.rules, self.used
        for name in self.lineage(queue):
            quota = rules.queue(name).quota.get(pool)
            if quota:
                best = max(best, quota - used[name, pool])
        return best

    def entitled(self, queue: str, pool: str, weight: float) -> bool:
        """Whether the queue, or an ancestor, would still be within its quota with `weight` more accelerators."""
        room = self.headroom(queue, pool)
        return room > 0 and weight <= room + EPSILON

    def borrowed(self, queue: str, pool: str) -> float:
        """Accelerators that the queue uses beyond its quota and that of every ancestor: what others may reclaim."""
        return self.borrowers(pool).get(queue, 0.0)

    def borrowers(self, pool: str) -> dict[str, float]:
        """The queues that exceed their quota on every level of the tree, and by how much."""
        found = self._borrowers.get(pool)
        if found is None:
            found = self._borrowers[pool] = {}
            for queue in [name for (name, where), used in self.used.items() if where == pool and used > EPSILON]:
                over = min([self.used[name, pool] - self.own(name, pool) for name in self.lineage(queue)])
                if over > EPSILON:
                    found[queue] = over
        return found

    def lent(self, pool: str) -> bool:
        """Whether any queue borrows in a pool in which some queue has a quota."""
        owned = any(rule.quota.get(pool) for rule in (self.rules.defaults, *self.rules.queues.values()))
        return owned and bool(self.borrowers(pool))

    def limit(self, queue: str, pool: str, weight: float) -> str | None:
        """The queue whose borrowing limit `weight` more accelerators would exceed; None when there is none."""
        for name in self.lineage(queue):
            borrow = self.rules.queue(name).borrow
            if borrow is not None and weight:
                most = self.own(name, pool) + borrow.get(pool, 0)
                if self.used[name, pool] + weight > most + EPSILON:
                    return name
        return None

    def kept_back(self, queue: str, pool: str) -> float:
        """Accelerators of the pool that other queues own, don't use and don't lend."""
        names = self._withheld.get(pool)
        if names is None:
            names = self._withheld[pool] = tuple(
                name
                for name in sorted({*self.queues, *self.rules.queues})
                if not self.rules.queue(name).lend and self.rules.queue(name).quota.get(pool)
            )
        above = self.lineage(queue)
        return sum(max(self.own(n, pool) - self.used[n, pool], 0.0) for n in names if n not in above)
