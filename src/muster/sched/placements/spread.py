"""Takes the emptiest nodes, so that one node's failure touches as little work as possible."""

from __future__ import annotations

from heapq import nsmallest

from muster.core.job import Job, Seat
from muster.sched.place import Free


class Spread:
    name = "spread"

    def place(self, job: Job, free: Free) -> tuple[Seat, ...] | None:
        wanted = job.spec.num_nodes
        best = nsmallest(
            wanted,
            free.candidates(job),
            key=lambda node: (-free.left(node).accelerators, -free.left(node).milli_cpus, node.name),
        )
        return tuple(free.seat(node, job) for node in best) if len(best) == wanted else None
