"""Orders to the workers of a running job: told with the answers to their reports, until they are old.

One kind asks for stacks, the other to save now. The order's id is that of the command: a worker is told more than once
and obeys once.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from muster.core.errors import Conflict
from muster.core.event import SYSTEM, Event
from muster.core.job import Job
from muster.core.payload import Audit
from muster.core.server_events import SaveOrdered, StacksOrdered
from muster.core.spec import ranks_per_node
from muster.store.base import Entry
from muster.store.commit import Commit
from muster.wire import Command, CommandKind

SPACING: Final = 2.0  # seconds; who asks again sooner has asked once
KEPT: Final = 120.0  # seconds for which workers are told of an order


@dataclass(frozen=True, slots=True)
class Order:
    id: int  # milliseconds since 1970, and larger than that of the order before
    job: str
    attempt: int
    world: int  # ranks
    seconds: float = 0.0  # for a profile; 0: one look


class Orders:
    """The orders of one kind that this server was given. A restart forgets those that workers have not heard of."""

    def __init__(
        self, commit: Commit, now: Callable[[], float], kind: CommandKind, event: Callable[[int, int], Audit]
    ) -> None:
        self._commit, self._now, self._kind, self._event = commit, now, kind, event
        self._newest: dict[str, Order] = {}  # by job
        self._lock = threading.Lock()

    def order(self, job: Job, actor: str = SYSTEM, seconds: float = 0.0) -> Order:
        """For every worker of a job whose ranks run; see `ranks_run`. An event names who asked; it is durable before a
        worker hears of the order."""
        assert job.attempt is not None
        now, number = self._now(), job.attempt.number
        world = len(job.attempt.workers) * ranks_per_node(job.spec)
        with self._lock:
            known = self._newest.get(job.id)
            alike = known is not None and (known.attempt, known.seconds) == (number, seconds)
            if known is not None and alike and 0 <= now - known.id / 1000 < SPACING:
                return known
            ident = max(int(now * 1000), known.id + 1 if known is not None else 0)
            made = Order(ident, job.id, number, world, seconds)
            event = Event(self._event(ident, world), now, actor, job.project, job.id, number)
            self._commit.submit(lambda state: Entry([event])).result()
            self._newest = {key: one for key, one in self._newest.items() if now - one.id / 1000 < KEPT}
            self._newest[job.id] = made
        return made

    def newest(self, job: str) -> Order | None:
        """The last order of the job, if it is not old."""
        return self._newest.get(job)

    def command(self, job: str, attempt: int, now: float) -> Command | None:
        """What a worker of the attempt is told."""
        known = self._newest.get(job)
        if known is None or known.attempt != attempt or now - known.id / 1000 > KEPT:
            return None
        return Command(known.id, self._kind, grace=known.seconds)


def stack_orders(commit: Commit, now: Callable[[], float]) -> Orders:
    """Orders for stacks. Every rank's document has the id; see `muster.track.stacks` for what is kept."""
    return Orders(commit, now, "stacks", StacksOrdered)


def save_orders(commit: Commit, now: Callable[[], float]) -> Orders:
    """Orders to save now, which programs see with `runtime.should_save`."""
    return Orders(commit, now, "save", SaveOrdered)


def ranks_run(job: Job) -> bool:
    """Whether there is a rank that could be asked for something."""
    return job.active and job.attempt is not None and any(one.state == "running" for one in job.attempt.workers)


def check_stacks(job: Job) -> None:
    """Raises Conflict for a job without ranks that run."""
    if not ranks_run(job):
        raise Conflict(
            f"The job {job.id} is {job.phase}: only processes that run have stacks.",
            f"`muster stacks --last {job.id}` shows the last that were taken."
            if job.final
            else f"`muster why {job.id}` says what it waits for.",
        )


def check_save(job: Job, listens: int | None) -> None:
    """Raises Conflict for a job that can't save now. `listens`: its newest attempt that looks for requests to save."""
    if job.stop is not None and job.active:
        raise Conflict(f"The job {job.id} is being stopped.", "A program that can save does so before it leaves.")
    if job.seatless and not job.final:
        raise Conflict(f"The job {job.id} has no ranks of its own.", f"`muster ls --parent {job.id}` lists its jobs.")
    if not ranks_run(job):
        raise Conflict(
            f"The job {job.id} is {job.phase}: only a program that runs can save.",
            f"`muster status {job.id}` names its last checkpoint."
            if job.final
            else f"`muster why {job.id}` says what it waits for.",
        )
    if job.attempt is None or listens != job.attempt.number:
        raise Conflict(
            f"The program of {job.id} has not said that it can save when it is asked.",
            "`muster.train` does from its first step on. Your own program says so by calling "
            "`muster.runtime.should_save()` in its loop.",
        )


def next_command(pending: Sequence[Command | None], told: str) -> Command | None:
    """What a worker is told now, that was told of the kind `told` last. It is told of each again and again, so the
    kinds take turns: none keeps another waiting until it is old."""
    newest: dict[str, Command] = {}
    for one in pending:
        if one is not None and (one.kind not in newest or one.id > newest[one.kind].id):
            newest[one.kind] = one
    others = [one for kind, one in newest.items() if kind != told]
    return others[0] if others else newest.get(told)
