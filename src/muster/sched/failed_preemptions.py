"""Preemption requests that failed, and what would make a retry useful: of a stream, and of all candidates of a pool.

What is kept is a bound: how many nodes a stream's first job would still lack if every possible victim were preempted.
A retry checks one by one the nodes where a gang has left or has become preemptible since then. It also compares
everything else that the right to preempt depends on (value, priority, borrowing queues, protected gangs).
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

_KEPT = 4096  # maximum entries of a log
EVERYWHERE = "*"


@dataclass(slots=True)
class Log:
    """Nodes of a pool that may have become easier to clear by preemption, in the order of these changes."""

    names: list[str] = field(default_factory=list)
    dropped: int = 0
    last: dict[str, int] = field(default_factory=dict)  # name → `end` after its last entry

    @property
    def end(self) -> int:
        return self.dropped + len(self.names)

    def add(self, name: str) -> None:
        self.names.append(name)
        self.last[name] = self.end
        if len(self.names) > _KEPT:
            self.dropped += len(self.names)
            self.names.clear()

    def since(self, seen: int) -> list[str] | None:
        """Entries from position `seen` on; None when some of them have been dropped."""
        return self.names[seen - self.dropped :] if seen >= self.dropped else None


@dataclass(slots=True)
class FailedPreemptions:
    job: str
    value: float  # value and priority of the waiting job at that time
    priority: float
    borrowers: AbstractSet[str]  # queues that borrowed
    protected: AbstractSet[str]  # gangs that could not be preempted
    missing: int  # nodes
    seen: int  # position in the pool's log
    counted: set[str] = field(default_factory=set)  # nodes already subtracted from `missing` since then


@dataclass(frozen=True, slots=True)
class FailedCandidate:
    """A stream whose request failed, as the check of a whole pool needs it."""

    need: int  # accelerators on each node
    value: float  # inf for an overdue job that goes first
    failed: FailedPreemptions


@dataclass(slots=True)
class QuietPool:
    """A pool in which all requests failed, and what this rests on; see `quiet_pools`."""

    claims: int  # `Claims.version`
    accelerators: float  # of the pool
    protected: AbstractSet[str]  # gangs
    borrowers: AbstractSet[str]  # queues
    candidates: list[FailedCandidate]
    least: float  # a stream of this value or less was no candidate
    next_value: float  # the highest value of such a stream
    seen: int  # position in the pool's log
