"""Who asked in vain that others leave, and for want of what: he asks again when that can have changed, not before.

What is remembered is a bound: how many nodes he lacked, had all left who may be asked. Nodes where somebody has left
since, or where somebody may be asked since, are looked at one by one; what else his right depends on is compared.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

_KEPT = 4096  # entries of a log
EVERYWHERE = "*"


@dataclass(slots=True)
class Log:
    """Nodes of a pool that may have become easier to clear, in the order in which they did."""

    names: list[str] = field(default_factory=list)
    dropped: int = 0

    @property
    def end(self) -> int:
        return self.dropped + len(self.names)

    def add(self, name: str) -> None:
        self.names.append(name)
        if len(self.names) > _KEPT:
            self.dropped += len(self.names)
            self.names.clear()

    def since(self, seen: int) -> list[str] | None:
        """None where that is forgotten."""
        return self.names[seen - self.dropped :] if seen >= self.dropped else None


@dataclass(slots=True)
class FailedPreemptions:
    worth: float  # what he was worth, and how urgent he was
    priority: float
    borrowers: AbstractSet[str]  # queues that borrowed
    protected: AbstractSet[str]  # gangs that nobody could ask
    missing: int  # nodes
    seen: int  # of the pool's log
    counted: set[str] = field(default_factory=set)  # nodes that were found since
