"""The whole live world in memory: what exists, and the indexes that make every change to it cheap.

Only `core.state.apply`, and a store that loads what it saved, may call what changes it.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

from muster.core.estate import Node, Pool, Project, Queue, Token
from muster.core.job import Attempt, Job
from muster.core.resources import Resources

KEYS_KEPT = 200_000  # idempotency keys in memory; the store has them all

EntityKind = Literal["node", "pool", "queue", "project", "token"]


@dataclass(slots=True)
class Changes:
    """What an event touched, for the store to write in the same transaction."""

    jobs: dict[str, Job] = field(default_factory=dict)
    attempts: dict[tuple[str, int], Attempt] = field(default_factory=dict)
    entities: dict[tuple[EntityKind, str], Node | Pool | Queue | Project | Token | None] = field(default_factory=dict)


class Line:
    """The queued jobs of one queue, best first: by priority, then by the number they were submitted under."""

    def __init__(self) -> None:
        self._keys: list[tuple[int, int]] = []
        self._ids: dict[tuple[int, int], str] = {}

    def add(self, job: Job) -> None:
        key = (-job.spec.priority, job.number)
        if key not in self._ids:
            insort(self._keys, key)
            self._ids[key] = job.id

    def discard(self, job: Job) -> None:
        key = (-job.spec.priority, job.number)
        if self._ids.pop(key, None) is not None:
            del self._keys[bisect_left(self._keys, key)]

    def ahead_of(self, job: Job) -> int:
        """How many jobs stand before it."""
        return bisect_left(self._keys, (-job.spec.priority, job.number))

    def __iter__(self) -> Iterator[str]:
        return (self._ids[key] for key in self._keys)

    def __len__(self) -> int:
        return len(self._keys)


@dataclass(slots=True)
class State:
    version: int = 0  # the `seq` of the last event
    time: float = 0.0  # of the last event
    next_number: int = 1
    projects: dict[str, Project] = field(default_factory=dict)
    queues: dict[str, Queue] = field(default_factory=dict)
    pools: dict[str, Pool] = field(default_factory=dict)
    nodes: dict[str, Node] = field(default_factory=dict)
    tokens: dict[str, Token] = field(default_factory=dict)
    jobs: dict[str, Job] = field(default_factory=dict)
    lines: dict[str, Line] = field(default_factory=dict)  # queue name → its queued jobs
    active: dict[str, None] = field(default_factory=dict)  # ids of jobs that hold resources, oldest first
    keys: dict[tuple[str, str], str] = field(default_factory=dict)  # (user, idempotency key) → job, the newest of them
    by_number: dict[int, str] = field(default_factory=dict)
    capacity: int = 0  # grows whenever something that was not free became free
    later: dict[str, float] = field(default_factory=dict)  # queued jobs that may not start before a time
    kinds: Counter[tuple[str, Resources]] = field(default_factory=Counter)  # (pool, whole node) → how many there are

    def add_job(self, job: Job) -> None:
        """Takes in a job as it is: used by `apply`, and by a store that loads what it saved."""
        self.jobs[job.id] = job
        self.by_number[job.number] = job.id
        self.next_number = max(self.next_number, job.number + 1)
        if job.key:
            self._remember_key(job.user, job.key, job.id)
        if job.phase == "queued":
            self.enqueue(job)
        elif job.active:
            self.active[job.id] = None
            self.hold(job)

    def add_node(self, node: Node) -> None:
        """Takes in a node, new or changed, keeping what its jobs hold of it."""
        known = self.nodes.get(node.name)
        if known is not None:
            self._drop_kind(known)
        self.kinds[(node.pool, node.total)] += 1
        node.free, node.free_devices = node.total, (1 << node.total.accelerators) - 1
        self.nodes[node.name] = node
        # One that left and came back finds the jobs that still sit there among those that hold resources.
        for job_id in known.jobs if known is not None else [j for j in self.active if self._sits_on(j, node.name)]:
            self._take(node, self.jobs[job_id])
        self.capacity += 1

    def _sits_on(self, job_id: str, node: str) -> bool:
        attempt = self.jobs[job_id].attempt
        return attempt is not None and any(worker.seat.node == node for worker in attempt.workers)

    def drop_node(self, name: str) -> None:
        node = self.nodes.pop(name, None)
        if node is not None:
            self._drop_kind(node)

    def _drop_kind(self, node: Node) -> None:
        self.kinds[(node.pool, node.total)] -= 1
        if not self.kinds[(node.pool, node.total)]:
            del self.kinds[(node.pool, node.total)]

    def enqueue(self, job: Job) -> None:
        self.lines.setdefault(job.queue, Line()).add(job)
        if job.not_before:
            self.later[job.id] = job.not_before

    def dequeue(self, job: Job) -> None:
        self.lines[job.queue].discard(job)
        self.later.pop(job.id, None)

    def hold(self, job: Job) -> None:
        assert job.attempt is not None
        for name in {worker.seat.node for worker in job.attempt.workers}:
            node = self.nodes.get(name)
            if node is not None:  # it may have left while the job ran
                self._take(node, job)

    def _take(self, node: Node, job: Job) -> None:
        assert job.attempt is not None
        node.jobs.add(job.id)
        for worker in job.attempt.workers:
            if worker.seat.node == node.name:
                node.free = node.free - job.ask
                node.free_devices &= ~_mask(worker.seat.devices)

    def release(self, job: Job) -> None:
        assert job.attempt is not None
        for worker in job.attempt.workers:
            node = self.nodes.get(worker.seat.node)
            if node is not None and job.id in node.jobs:
                node.free = node.free + job.ask
                node.free_devices |= _mask(worker.seat.devices)
        for worker in job.attempt.workers:
            if worker.seat.node in self.nodes:
                self.nodes[worker.seat.node].jobs.discard(job.id)
        self.active.pop(job.id, None)
        self.capacity += 1

    def remove(self, job: Job) -> None:
        del self.jobs[job.id], self.by_number[job.number]

    def _remember_key(self, user: str, key: str, job_id: str) -> None:
        """Beyond the job's own life: a job may end between a look into the store and the commit that relies on it."""
        self.keys[(user, key)] = job_id
        if len(self.keys) > KEYS_KEPT:
            del self.keys[next(iter(self.keys))]


def _mask(devices: tuple[int, ...]) -> int:
    return sum(1 << device for device in devices)
