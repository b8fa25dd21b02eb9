"""The live state in memory: all entities and jobs, and the indexes that make every change cheap.

Only `core.state.apply`, and a store that loads what it saved, may call the methods that change it.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Literal

from muster.core.account import Account, amount
from muster.core.entities import Node, Pool, Project, Queue, Token
from muster.core.history import History, groups_of
from muster.core.job import Attempt, Job
from muster.core.journal import Journal
from muster.core.ledger import Ledger, Use, ledger_name
from muster.core.resources import Resources
from muster.core.rules import Rules

KEYS_KEPT = 200_000  # idempotency keys in memory; the store has all of them

EntityKind = Literal["node", "pool", "queue", "project", "token", "rules", "account", "ledger"]


@dataclass(frozen=True, slots=True)
class RulesInForce:
    """The rules, and the text that they were parsed from."""

    rules: Rules = field(default_factory=Rules)
    text: str = ""


Entity = Node | Pool | Queue | Project | Token | RulesInForce | Account | Ledger


@dataclass(slots=True)
class Changes:
    """What an event changed; the store writes it in the same transaction."""

    jobs: dict[str, Job] = field(default_factory=dict)
    attempts: dict[tuple[str, int], Attempt] = field(default_factory=dict)
    entities: dict[tuple[EntityKind, str], Entity | None] = field(default_factory=dict)


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
    history: History = field(default_factory=History)
    lines: dict[str, dict[str, None]] = field(default_factory=dict)  # queue name → ids of its queued jobs, unordered
    active: dict[str, None] = field(default_factory=dict)  # ids of jobs that hold resources, oldest first
    seatless: dict[str, None] = field(default_factory=dict)  # ids of jobs that run without nodes
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
        elif job.seatless:
            self.seatless[job.id] = None

    def add_node(self, node: Node) -> None:
        """Adds a node, new or changed, and keeps what its jobs hold on it."""
        if node.role == "machine":
            self.machines[node.name] = node
            return
        known = self.nodes.get(node.name)
        if known is not None:
            self._drop_kind(known)
        self.kinds[(node.pool, node.total)] += 1
        node.clear()
        self.nodes[node.name] = node
        # For a node that left and came back, the jobs on it are found among the active ones.
        for job_id in known.jobs if known is not None else [j for j in self.active if self._sits_on(j, node.name)]:
            self._sit(node, self.jobs[job_id])
        self.journal.note("node", node.name)

    def find_node(self, name: str) -> Node | None:
        """Finds a node, or a machine of an engine that places the workers itself."""
        return self.nodes.get(name) or self.machines.get(name)

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

    def charge(self, job: Job, sign: int, time: float) -> tuple[str, Account]:
        """Starts (+1) or ends (-1) counting what the job's attempt holds, for fair share."""
        assert job.attempt is not None
        name = account_name(job.queue, job.user)
        account = self.accounts.setdefault(name, Account(at=time))
        account.change(amount(job.ask, len(job.attempt.workers)), sign, time, self.rules.half_life)
        return name, account

    def enter(self, job: Job, time: float) -> tuple[str, Ledger]:
        """Adds the attempt of the job, which ends now, to the ledger of its project and pool."""
        attempt = job.attempt
        assert attempt is not None
        name = ledger_name(job.project, attempt.pool)
        ledger = self.ledgers.get(name)
        if ledger is None:
            ledger = self.ledgers[name] = Ledger(job.project, attempt.pool, Use())
        ledger.use.hold(job.ask, len(attempt.workers), attempt.planned_at, time)
        return name, ledger

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
        """Adds the run time of a finished job to the history."""
        if job.ran:
            self.history.observe(groups_of(job.user, job.spec), job.ran)
            self.journal.note("history", job.user)

    def remove(self, job: Job) -> None:
        del self.jobs[job.id], self.by_number[job.number]
        if self.seatless:
            self.seatless.pop(job.id, None)
        self._count_live(job, -1)

    def _count_live(self, job: Job, sign: int) -> None:
        for name in (("user", job.user), ("project", job.project)):
            self.live[name] += sign
            if not self.live[name]:
                del self.live[name]

    def _remember_key(self, user: str, key: str, job_id: str) -> None:
        """Keeps the key after the job's end: a job may end between a query of the store and the commit after it."""
        self.keys[(user, key)] = job_id
        if len(self.keys) > KEYS_KEPT:
            del self.keys[next(iter(self.keys))]


def account_name(queue: str, user: str) -> str:
    return f"{queue}/{user}"
