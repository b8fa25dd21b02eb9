"""Claims: seats that are reserved for a job until other gangs have left them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass, field

from muster.core.job import Job, Seat
from muster.sched.limits import Limits


@dataclass(frozen=True, slots=True)
class Claimed:
    job: Job
    seats: tuple[Seat, ...]
    pool: str


@dataclass(slots=True)
class Claims:
    limits: Limits  # claimed seats count as if the job ran on them
    by_job: dict[str, Claimed] = field(default_factory=dict)
    version: int = 0  # rises with every change
    touched: set[str] = field(default_factory=set)  # nodes whose claims have changed
    _by_node: defaultdict[str, dict[str, Claimed]] = field(default_factory=lambda: defaultdict(dict))

    def on(self, node: str) -> Collection[Claimed]:
        """The claims on seats of the node."""
        return self._by_node[node].values() if node in self._by_node else ()

    def add(self, job: Job, seats: tuple[Seat, ...], pool: str) -> None:
        self.version += 1
        claim = self.by_job[job.id] = Claimed(job, seats, pool)
        for seat in seats:
            self._by_node[seat.node][job.id] = claim
            self.touched.add(seat.node)
        self.limits.add(job, pool, seats)

    def remove(self, job_id: str) -> None:
        claim = self.by_job.pop(job_id, None)
        if claim is not None:
            self.version += 1
            for seat in claim.seats:
                self._by_node[seat.node].pop(job_id, None)
                self.touched.add(seat.node)
            self.limits.remove(claim.job, claim.pool, claim.seats)
