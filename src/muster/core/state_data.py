"""The live state in memory: all entities and jobs, and the indexes that make every change cheap.

Only the folds of events (`core.state.apply`), and a store that loads what it saved, may change it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from muster.core.array import Tasks, add_array, add_task
from muster.core.entities.account import Account
from muster.core.entities.budget import Budget
from muster.core.entities.ledger import Ledger, Use
from muster.core.entities.node import Node
from muster.core.entities.pool import Pool
from muster.core.entities.project import Project
from muster.core.entities.queue import Queue
from muster.core.entities.rules_in_force import RulesInForce
from muster.core.entities.study import Study
from muster.core.entities.token import Token
from muster.core.history import History, groups_of
from muster.core.job import Attempt, Job, Worker
from muster.core.journal import Journal
from muster.core.needs import await_needs, leave_needs
from muster.core.resources import Resources
from muster.core.rules import Rules
from muster.core.start import expect_start, settle_start
from muster.core.trial_map import TrialMap

if TYPE_CHECKING:
    from muster.core.event import Event

KEYS_KEPT = 200_000  # idempotency keys in memory; the store has all of them


@dataclass(slots=True)
class Changes:
    """What an event changed; the store writes it in the same transaction."""

    jobs: dict[str, Job] = field(default_factory=dict)
    attempts: dict[tuple[str, int], Attempt] = field(default_factory=dict)
    entities: dict[tuple[str, str], object] = field(default_factory=dict)  # (kind, name) → the entity; None: removed

    def touch(self, job: Job) -> None:
        """The job and its attempt have changed."""
        self.jobs[job.id] = job
        if job.attempt is not None:
            self.attempts[(job.id, job.attempt.number)] = job.attempt


@dataclass(slots=True)
class State:
    version: int = 0  # the `seq` of the last event
    time: float = 0.0  # of the last event
    next_number: int = 1
    projects: dict[str, Project] = field(default_factory=dict)
    queues: dict[str, Queue] = field(default_factory=dict)
    pools: dict[str, Pool] = field(default_factory=dict)
    nodes: dict[str, Node] = field(default_factory=dict)
    machines: dict[str, Node] = field(default_factory=dict)  # nodes on which the engine, not Muster, places workers
    tokens: dict[str, Token] = field(default_factory=dict)
    jobs: dict[str, Job] = field(default_factory=dict)
    in_force: RulesInForce = field(default_factory=RulesInForce)
    accounts: dict[str, Account] = field(default_factory=dict)  # see `account_name`
    ledgers: dict[str, Ledger] = field(default_factory=dict)  # see `ledger_name`
    budgets: dict[str, Budget] = field(default_factory=dict)
    budget_index: dict[tuple[str, str], dict[str, None]] = field(default_factory=dict)  # (part of a scope, its value)
    studies: dict[str, Study] = field(default_factory=dict)
    trials: dict[str, TrialMap] = field(default_factory=dict)  # by study
    live_trials: dict[str, dict[int, None]] = field(default_factory=dict)  # study → its trials that take a place
    trial_jobs: dict[str, tuple[str, int]] = field(default_factory=dict)  # job → the study and the number of its trial
    others: dict[str, dict[str, Any]] = field(default_factory=dict)  # entities without a field here: kind → name → it
    history: History = field(default_factory=History)
    lines: dict[str, dict[str, None]] = field(default_factory=dict)  # queue name → ids of its queued jobs, unordered
    active: dict[str, None] = field(default_factory=dict)  # ids of jobs that hold resources, oldest first
    seatless: dict[str, None] = field(default_factory=dict)  # ids of jobs that run without nodes
    dependents: dict[str, dict[str, None]] = field(default_factory=dict)  # job → ids of the queued jobs that await it
    starters: dict[str, dict[str, None]] = field(default_factory=dict)  # run → jobs that have yet to take a checkpoint
    tasks: dict[str, Tasks] = field(default_factory=dict)  # array → its tasks that are not over
    settled: dict[str, None] = field(default_factory=dict)  # ids of jobs that the next tick ends; see `sched.settle`
    keys: dict[tuple[str, str], str] = field(default_factory=dict)  # (user, idempotency key) → job; the newest ones
    live: Counter[tuple[str, str]] = field(default_factory=Counter)  # ("user" or "project", name) → unfinished jobs
    by_number: dict[int, str] = field(default_factory=dict)
    kinds: Counter[tuple[str, Resources]] = field(default_factory=Counter)  # (pool, total of a node) → number of nodes
    journal: Journal = field(default_factory=Journal, compare=False)

    @property
    def rules(self) -> Rules:
        return self.in_force.rules

    def add_job(self, job: Job) -> None:
        """Adds a job as it is. Used by `apply`, and by a store that loads what it saved."""
        if job.id not in self.jobs:
            self._count_live(job, +1)
            if job.array is not None:
                add_task(self, job)
        self.jobs[job.id] = job
        self.by_number[job.number] = job.id
        self.next_number = max(self.next_number, job.number + 1)
        if job.key:
            self._remember_key(job.user, job.key, job.id)
        expect_start(self, job)
        if job.phase == "queued":
            self.enqueue(job)
            if job.awaits:
                await_needs(self, job)
        elif job.active:
            self.active[job.id] = None
            self.hold(job)
        elif job.is_array:
            add_array(self, job)
        elif job.seatless:
            self.seatless[job.id] = None

    def add_node(self, node: Node) -> None:
        """Adds a node, new or changed, and keeps what its jobs hold on it."""
        node.clear()
        if node.role == "machine":
            self.machines[node.name] = node
            return
        known = self.nodes.get(node.name)
        if known is not None:
            self._drop_kind(known)
        self.kinds[(node.pool, node.total)] += 1
        self.nodes[node.name] = node
        # For a node that left and came back, the jobs on it are found among the active ones.
        for job_id in known.jobs if known is not None else [j for j in self.active if self._sits_on(j, node.name)]:
            self._sit(node, self.jobs[job_id])
        self.journal.note("node", node.name)

    def find_node(self, name: str) -> Node | None:
        """Finds a node, or a machine of an engine that places the workers itself."""
        return self.nodes.get(name) or self.machines.get(name)

    def current(self, event: Event) -> Job | None:
        """The event's job, if the event is about its current attempt; else None. This drops late reports."""
        job = self.jobs.get(event.job)
        if job is None or job.attempt is None or job.attempt.number != event.attempt or not job.active:
            return None
        return job

    def pool_of(self, workers: Sequence[Worker]) -> str:
        """The pool of a gang; "" if its first node has left."""
        first = self.nodes.get(workers[0].seat.node) if workers else None
        return first.pool if first is not None else ""

    def _sits_on(self, job_id: str, node: str) -> bool:
        attempt = self.jobs[job_id].attempt
        return attempt is not None and any(worker.seat.node == node for worker in attempt.workers)

    def drop_node(self, name: str) -> None:
        self.machines.pop(name, None)
        node = self.nodes.pop(name, None)
        if node is not None:
            self._drop_kind(node)
            self.journal.note("node", name)

    def _drop_kind(self, node: Node) -> None:
        self.kinds[(node.pool, node.total)] -= 1
        if not self.kinds[(node.pool, node.total)]:
            del self.kinds[(node.pool, node.total)]

    def enqueue(self, job: Job) -> None:
        self.lines.setdefault(job.queue, {})[job.id] = None
        self.journal.note("job", job.id)

    def dequeue(self, job: Job) -> None:
        self.lines[job.queue].pop(job.id, None)
        job.claim = ()
        if job.awaits:
            leave_needs(self, job)
        self.journal.note("job", job.id)

    def hold(self, job: Job) -> None:
        assert job.attempt is not None
        for worker in job.attempt.workers:
            node = self.nodes.get(worker.seat.node)
            if node is not None:  # the node may have left while the job ran
                node.jobs.add(job.id)
                node.take(worker.seat, job.ask)
                self.journal.note("node", node.name)
        self.journal.note("job", job.id)

    def _sit(self, node: Node, job: Job) -> None:
        assert job.attempt is not None
        node.jobs.add(job.id)
        for worker in job.attempt.workers:
            if worker.seat.node == node.name:
                node.take(worker.seat, job.ask)

    def release(self, job: Job) -> None:
        assert job.attempt is not None
        for worker in job.attempt.workers:
            node = self.nodes.get(worker.seat.node)
            if node is not None and job.id in node.jobs:
                node.give(worker.seat, job.ask)
                node.jobs.discard(job.id)
                self.journal.note("node", node.name)
        self.active.pop(job.id, None)
        self.journal.note("job", job.id)

    def used(self, project: str, now: float, pool: str | None = None) -> Use:
        """What a project has used of a pool, or of all, with what its active jobs have held so far."""
        found = Use()
        for ledger in self.ledgers.values():
            if ledger.project == project and pool in (None, ledger.pool):
                found.add(ledger.use)
        for job in (self.jobs[name] for name in self.active):
            attempt = job.attempt
            if attempt is not None and job.project == project and pool in (None, attempt.pool):
                found.hold(job.ask, len(attempt.workers), attempt.planned_at, now)
        return found

    def learn(self, job: Job) -> None:
        """Adds the run time of a finished job to the history. A trial that its study has paused is not finished."""
        if job.ran and (job.reason is None or job.reason.code != "trial_paused"):
            self.history.observe(groups_of(job.user, job.spec), job.ran)
            self.journal.note("history", job.user)

    def remove(self, job: Job) -> None:
        del self.jobs[job.id], self.by_number[job.number]
        if job.start is not None:
            settle_start(self, job)
        if self.seatless:
            self.seatless.pop(job.id, None)
        if job.is_array:
            del self.tasks[job.id]
            self.settled.pop(job.id, None)
        self._count_live(job, -1)

    def _count_live(self, job: Job, sign: int) -> None:
        if job.is_array:
            return  # its tasks count
        for name in (("user", job.user), ("project", job.project)):
            self.live[name] += sign
            if not self.live[name]:
                del self.live[name]

    def _remember_key(self, user: str, key: str, job_id: str) -> None:
        """Keeps the key after the job's end: a job may end between a query of the store and the commit after it."""
        self.keys[(user, key)] = job_id
        if len(self.keys) > KEYS_KEPT:
            del self.keys[next(iter(self.keys))]
