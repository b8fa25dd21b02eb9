"""Spares of a pool: healthy nodes without work that are kept for gangs that lost a node.

`spares` of a pool's rules counts nodes. Which nodes these are follows from what is free: of the healthy nodes on which
nothing runs, the largest, and of equal ones the last by name. A node that returns, or on which the last job ended,
joins them until there are enough. Nothing is preempted to make up the number.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from muster.core.job import Job
from muster.core.resources import Resources
from muster.core.rules import Rules

# Ends after which a node of the gang can't be used. A killed launcher is not among them: its node is still there, and a
# program that kills its own launcher must not get a spare for it.
LOST_NODE: Final = frozenset({"node_lost", "node_check_failed", "spot_notice", "straggler_node"})

Size = tuple[int, int, int, int]


def spares_for(job: Job, rules: Rules) -> str:
    """The pool whose spares a queued job may use, because its last attempt lost a node there; "" for none."""
    attempt, why = job.attempt, job.reason
    if attempt is None or why is None or why.code not in LOST_NODE or not rules.pool(attempt.pool).spares:
        return ""
    return attempt.pool


def size(total: Resources) -> Size:
    """The order in which nodes become spares: the largest first, because they can replace any other."""
    return total.accelerators, total.accelerator_memory, total.milli_cpus, total.memory


def without_spares(kinds: Mapping[Resources, int], spares: int) -> Mapping[Resources, int]:
    """Of nodes, as resources → number, those that ordinary work can use if nothing runs."""
    if not spares:
        return kinds
    left = dict(kinds)
    for total in sorted(left, key=size, reverse=True):
        kept = min(left[total], spares)
        left[total], spares = left[total] - kept, spares - kept
    return left
