"""Whose accelerators they are: quotas along the tree of queues, what is borrowed, and what may be borrowed.

A queue that uses no more than its quota, or that sits in one that does, is within its quota: what it uses is its own.
Beyond that it borrows what others leave idle, and gives it back when they want it.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

from muster.core.rules import Rules

EPSILON = 1e-6  # accelerators: parts of them are added up in floating point


@dataclass(slots=True)
class Quotas:
    rules: Rules = field(default_factory=Rules)
    queues: tuple[str, ...] = ()  # all that there are
    used: defaultdict[tuple[str, str], float] = field(default_factory=lambda: defaultdict(float))  # (queue, pool)
    _any: bool | None = None
    _lineages: dict[str, tuple[str, ...]] = field(default_factory=dict)
    _withheld: dict[str, tuple[str, ...]] = field(default_factory=dict)  # pool → queues with a quota that don't lend
    _borrowers: dict[str, dict[str, float]] = field(default_factory=dict)  # pool → what its queues borrow, once asked

    @property
    def any(self) -> bool:
        """Whether there is anything to keep to."""
        if self._any is None:
            every = (self.rules.defaults, *self.rules.queues.values())
            self._any = any(rule.quota or rule.borrow is not None or not rule.lend for rule in every)
        return self._any

    def change(self, queue: str, pool: str, weight: float) -> None:
        """A gang of the queue took this many accelerators of the pool, or gave them back (less than 0)."""
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
        """Accelerators that the queue could still take as its own, or as the own of one that it sits in."""
        best, rules, used = 0.0, self.rules, self.used
        for name in self.lineage(queue):
            quota = rules.queue(name).quota.get(pool)
            if quota:
                best = max(best, quota - used[name, pool])
        return best

    def entitled(self, queue: str, pool: str, weight: float) -> bool:
        """Whether with this much more the queue, or one that it sits in, would still be within its quota."""
        room = self.headroom(queue, pool)
        return room > 0 and weight <= room + EPSILON

    def borrowed(self, queue: str, pool: str) -> float:
        """Accelerators that the queue uses and that are nobody's on its line: what may be asked back of it."""
        return self.borrowers(pool).get(queue, 0.0)

    def borrowers(self, pool: str) -> dict[str, float]:
        """The queues that use more than is their own on every level, and how much more."""
        found = self._borrowers.get(pool)
        if found is None:
            found = self._borrowers[pool] = {}
            for queue in [name for (name, where), used in self.used.items() if where == pool and used > EPSILON]:
                over = min([self.used[name, pool] - self.own(name, pool) for name in self.lineage(queue)])
                if over > EPSILON:
                    found[queue] = over
        return found

    def lent(self, pool: str) -> bool:
        """Whether anyone uses what is not its own in a pool where something is someone's own."""
        owned = any(rule.quota.get(pool) for rule in (self.rules.defaults, *self.rules.queues.values()))
        return owned and bool(self.borrowers(pool))

    def limit(self, queue: str, pool: str, weight: float) -> str | None:
        """The queue whose limit on borrowing this much more would go past; None when none would."""
        for name in self.lineage(queue):
            borrow = self.rules.queue(name).borrow
            if borrow is not None and weight:
                most = self.own(name, pool) + borrow.get(pool, 0)
                if self.used[name, pool] + weight > most + EPSILON:
                    return name
        return None

    def kept_back(self, queue: str, pool: str) -> float:
        """Accelerators of the pool that others own, don't use and don't lend."""
        names = self._withheld.get(pool)
        if names is None:
            names = self._withheld[pool] = tuple(
                name
                for name in sorted({*self.queues, *self.rules.queues})
                if not self.rules.queue(name).lend and self.rules.queue(name).quota.get(pool)
            )
        above = self.lineage(queue)
        return sum(max(self.own(n, pool) - self.used[n, pool], 0.0) for n in names if n not in above)
