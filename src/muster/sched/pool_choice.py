"""Choice between pools of the same price whose engines have their own queues: the likely earliest start goes first.

The estimate uses the state: how many gangs wait in each engine, and when the engine expects the last one to start.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from itertools import groupby

from muster.core.job import Job
from muster.core.state import State
from muster.sched.board import Board


@dataclass(slots=True)
class PoolChoice:
    """The choice for one round. Costs nothing where at most one pool has an engine with its own queue."""

    state: State
    board: Board
    _waiting: Counter[str] | None = None  # pool → gangs in its engine's queue, including those of this round
    _last: dict[str, float] = field(default_factory=dict)  # pool → latest start that its engine expects

    def sort(self, pools: tuple[str, ...], job: Job) -> tuple[str, ...]:
        """Reorders neighbouring pools of the same kind and price. All other pools keep their places."""
        if len(pools) < 2 or sum(self.state.pools[pool].delegated for pool in pools if pool in self.state.pools) < 2:
            return pools
        waiting = self._look()
        found: list[str] = []
        for (delegated, *_), some in groupby(pools, lambda pool: self._kind(pool, job)):
            same = list(some)
            if delegated:
                same.sort(key=lambda pool: (self._last.get(pool, 0.0), waiting[pool]))  # stable: then by name
            found += same
        return tuple(found)

    def add(self, pool: str) -> None:
        """A gang is handed over to the pool's engine."""
        if self._waiting is not None:
            self._waiting[pool] += 1

    def _kind(self, pool: str, job: Job) -> tuple[bool, int, bool, bool]:
        known, rule = self.state.pools.get(pool), self.state.rules.pool(pool)
        spot = rule.spot if rule.spot is not None else known is not None and known.spot
        price = self.board.pools.price(job, pool)
        return known is not None and known.delegated, price, pool in self.board.pools.bursts, spot

    def _look(self) -> Counter[str]:
        if self._waiting is None:
            self._waiting = Counter()
            for name in self.state.active:
                job = self.state.jobs[name]
                if job.phase != "starting" or job.attempt is None:
                    continue
                pool, at = job.attempt.pool, job.reason.data.get("starts_at") if job.reason is not None else None
                self._waiting[pool] += 1
                self._last[pool] = max(self._last.get(pool, 0.0), at or 0.0)
        return self._waiting
