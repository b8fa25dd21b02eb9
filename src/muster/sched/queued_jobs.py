"""Queued jobs, grouped so that a round looks only at jobs that could start.

Jobs with the same request share one shape: if one of them does not fit, none does. Jobs of one queue, user, shape and
band form a stream, a sorted list whose order never changes.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field
from itertools import chain

from muster.core.job import Job
from muster.core.rules import QueueRules
from muster.sched.failed_preemptions import FailedPreemptions
from muster.sched.order import Key, Policy
from muster.sched.place import GangRequest

Entry = tuple[Key, int, str]  # key within the stream, number, id
Line = tuple[str, str]  # project and queue


@dataclass(slots=True, eq=False)
class Shape:
    """A resource request, shared by all jobs that ask for the same."""

    gang: GangRequest
    fewest: int  # minimum nodes
    each: float  # accelerators per worker
    lines: dict[Line, dict[Stream, None]] = field(default_factory=dict)  # the streams with at least one job
    fits_empty: tuple[int, bool] = (-1, False)  # `Free.hardware`, and whether it fits if nothing runs in its only pool
    blocked: tuple[int, ...] | None = None  # `Free.grew` of its pools when it last did not fit

    @property
    def weight(self) -> float:
        """Accelerators of the whole gang."""
        return self.each * self.gang.nodes

    @property
    def streams(self) -> Iterator[Stream]:
        """Those with at least one job."""
        return chain.from_iterable(self.lines.values())


@dataclass(slots=True, eq=False)
class Stream:
    queue: str
    user: str  # "" where the queue does not distinguish users
    band_user: str  # the user to whom the band applies, where a band depends on the user
    project: str
    shape: Shape
    band: Hashable
    overdue: bool
    not_before: float  # none of its jobs may start before this time
    policy: Policy
    rules: QueueRules
    number: int  # of the stream; tie-break
    value: float = 0.0  # see `Policy.value`; 0 where the policy does not preempt
    entries: list[Entry] = field(default_factory=list)
    turns: list[Entry] = field(default_factory=list)  # for `reselect`: by submission and wait in place of the number
    failed_preemptions: dict[str, FailedPreemptions] = field(default_factory=dict)  # by pool

    @property
    def line(self) -> Line:
        return self.project, self.queue

    def add(self, entry: Entry) -> None:
        insort(self.entries, entry)

    def remove(self, entry: Entry) -> None:
        del self.entries[bisect_left(self.entries, entry)]


@dataclass(slots=True, eq=False)
class Queued:
    """A queued job and its position."""

    job: Job
    stream: Stream
    entry: Entry
    turn: Entry | None = None  # its entry in `stream.turns`
