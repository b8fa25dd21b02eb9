"""The queued jobs, sorted so that a round looks only at those that could start.

Jobs that ask for the same stand under one shape: where one of them does not fit, none does. Those of one queue, user,
shape and band form a stream, a sorted list whose order never changes.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Hashable
from dataclasses import dataclass, field

from muster.core.job import Job
from muster.core.rules import QueueRules
from muster.sched.failed_preemptions import FailedPreemptions
from muster.sched.order import Key, Policy
from muster.sched.place import Gang

Entry = tuple[Key, int, str]  # key within the stream, number, id


@dataclass(slots=True, eq=False)
class Shape:
    """What jobs ask for, in one object for all that ask for the same."""

    gang: Gang
    fewest: int  # nodes
    each: float  # accelerators of a worker
    streams: dict[Stream, None] = field(default_factory=dict)  # those that have someone in them
    blocked: tuple[int, ...] | None = None  # `Free.grew` of its pools when it did not fit

    @property
    def weight(self) -> float:
        """Accelerators of the whole gang."""
        return self.each * self.gang.nodes


@dataclass(slots=True, eq=False)
class Stream:
    queue: str
    user: str  # "" where the users of the queue stand in one line
    whose: str  # of whom the band speaks, where it speaks of a user
    project: str
    shape: Shape
    band: Hashable
    overdue: bool
    resting: float  # nobody in it may start before
    policy: Policy
    rules: QueueRules
    number: int  # of the stream: what is alike in all else is told apart by it
    worth: float = 0.0  # see `Policy.worth`; 0 where the order makes nobody give way
    entries: list[Entry] = field(default_factory=list)
    failed_preemptions: dict[str, FailedPreemptions] = field(default_factory=dict)  # by pool

    def add(self, entry: Entry) -> None:
        insort(self.entries, entry)

    def remove(self, entry: Entry) -> None:
        del self.entries[bisect_left(self.entries, entry)]


@dataclass(slots=True, eq=False)
class Queued:
    """Where a queued job stands."""

    job: Job
    stream: Stream
    entry: Entry
