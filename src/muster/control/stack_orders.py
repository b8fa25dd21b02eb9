"""Orders for stacks: told to a job's workers with the answers to their reports, until they are old.

The order's id is that of the command, and every rank's document has it; see `muster.track.stacks` for what is kept.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from muster.core.errors import Conflict
from muster.core.event import SYSTEM, Event
from muster.core.job import Job
from muster.core.server_events import StacksOrdered
from muster.core.spec import ranks_per_node
from muster.store.base import Entry
from muster.store.commit import Commit
from muster.wire import Command

SPACING: Final = 2.0  # seconds; who asks again sooner gets the same stacks
KEPT: Final = 120.0  # seconds for which workers are told of an order


@dataclass(frozen=True, slots=True)
class StackOrder:
    id: int  # milliseconds since 1970, and larger than that of the order before
    job: str
    attempt: int
    world: int  # ranks


class StackOrders:
    """The orders of this server. A restart forgets those that workers have not heard of."""

    def __init__(self, commit: Commit, now: Callable[[], float]) -> None:
        self._commit, self._now = commit, now
        self._newest: dict[str, StackOrder] = {}  # by job
        self._lock = threading.Lock()

    def order(self, job: Job, actor: str = SYSTEM) -> StackOrder:
        """Asks every worker of a running job for the stacks of its ranks. Raises Conflict if it does not run.

        An event names who asked; it is durable before a worker hears of the order.
        """
        if not job.active or job.attempt is None or all(one.state != "running" for one in job.attempt.workers):
            raise Conflict(
                f"The job {job.id} is {job.phase}: only processes that run have stacks.",
                f"`muster stacks --last {job.id}` shows the last that were taken."
                if job.final
                else f"`muster why {job.id}` says what it waits for.",
            )
        now, number = self._now(), job.attempt.number
        world = len(job.attempt.workers) * ranks_per_node(job.spec)
        with self._lock:
            known = self._newest.get(job.id)
            if known is not None and known.attempt == number and 0 <= now - known.id / 1000 < SPACING:
                return known
            ident = max(int(now * 1000), known.id + 1 if known is not None else 0)
            made = StackOrder(ident, job.id, number, world)
            event = Event(StacksOrdered(ident, world), now, actor, job.project, job.id, number)
            self._commit.submit(lambda state: Entry([event])).result()
            self._newest = {key: one for key, one in self._newest.items() if now - one.id / 1000 < KEPT}
            self._newest[job.id] = made
        return made

    def newest(self, job: str) -> StackOrder | None:
        """The last order of the job, if it is not old."""
        return self._newest.get(job)

    def command(self, job: str, attempt: int, now: float) -> Command | None:
        """What a worker of the attempt is told. It is told more than once and obeys once, by the command's id."""
        known = self._newest.get(job)
        if known is None or known.attempt != attempt or now - known.id / 1000 > KEPT:
            return None
        return Command(known.id, "stacks")
