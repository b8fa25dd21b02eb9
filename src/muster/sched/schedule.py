"""One scheduling round: a state and a time in, a plan out.

1. Merge the queues' lines, each in the order of its policy, best job first.
2. Place a job's whole gang on what is left, or pass on.
3. A job that does not fit closes its queue for this round, unless its policy lets others pass.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass, field

from muster.core.job import Job
from muster.core.plan import Plan, Start
from muster.core.state import State
from muster.sched.place import Free
from muster.sched.placements import PLACEMENTS
from muster.sched.policies import POLICIES


@dataclass(slots=True)
class Memo:
    """What earlier rounds found out, so that a round costs what changed: a head that did not fit still does not,
    until something becomes free. Losing it changes the cost of a round, never its result."""

    blocked: dict[str, tuple[str, int]] = field(default_factory=dict)  # queue → (job, capacity when it did not fit)


def schedule(state: State, now: float, memo: Memo | None = None) -> Plan:
    memo = memo or Memo()
    free = Free(state)
    starts: list[Start] = []
    heads: list[tuple[tuple[int, int], str, Job, Iterator[Job]]] = []
    for name, line in state.lines.items():
        if len(line):
            jobs = POLICIES.get(state.queues[name].policy).order(line, state, now)
            _advance(heads, name, jobs)
    while heads:
        _, name, job, jobs = heapq.heappop(heads)
        if memo.blocked.get(name) == (job.id, state.capacity):
            continue
        seats = PLACEMENTS.get(job.spec.placement).place(job, free)
        if seats is not None:
            starts.append(Start(job.id, seats))
        elif not POLICIES.get(state.queues[name].policy).passes(job):
            # What this round gave away counts as taken: only a head that an untouched state can't hold is remembered.
            if not starts:
                memo.blocked[name] = (job.id, state.capacity)
            continue
        _advance(heads, name, jobs)
    upcoming = [at for at in state.later.values() if at > now]
    return Plan(state.version, tuple(starts), min(upcoming, default=None))


def _advance(heads: list[tuple[tuple[int, int], str, Job, Iterator[Job]]], name: str, jobs: Iterator[Job]) -> None:
    job = next(jobs, None)
    if job is not None:
        heapq.heappush(heads, ((-job.spec.priority, job.number), name, job, jobs))
