"""A copy of all state that decides which job starts when, taken quickly between two commits, for use elsewhere.

Queued jobs far back in the order are left out: `left_out` says how many.
"""

from __future__ import annotations

from collections.abc import Iterable
from copy import deepcopy
from dataclasses import dataclass, field, fields, replace
from itertools import chain, islice
from operator import attrgetter
from typing import Any, Final

from muster.core.entities import Node, Pool, Project, Queue, RulesInForce
from muster.core.entities.account import Account
from muster.core.history import Group, History, Table, groups_of
from muster.core.job import Attempt, Job, Worker
from muster.core.state import State
from muster.sched.board import Board
from muster.sched.likely_end import Ends
from muster.sched.position import QueuePositions

CONSIDERED: Final = 1_000  # queued jobs

_job_fields = attrgetter(*(one.name for one in fields(Job)))
_attempt_fields = attrgetter(*(one.name for one in fields(Attempt)))


@dataclass(frozen=True, slots=True)
class Snapshot:
    now: float
    next_number: int
    nodes: list[Node]
    pools: dict[str, Pool]
    queues: dict[str, Queue]
    projects: dict[str, Project]
    in_force: RulesInForce
    jobs: list[Job]  # running jobs, oldest first, then queued jobs, next one first
    history: History
    accounts: dict[str, Account] = field(default_factory=dict)
    left_out: int = 0  # queued jobs
    ends: Ends = field(default_factory=dict)  # of running jobs, by the progress that they report
    others: dict[str, dict[str, Any]] = field(default_factory=dict)  # entities without a field of their own, by kind

    def new_state(self) -> State:
        """A new state made from the snapshot, which the caller may change."""
        state = State(time=self.now, next_number=self.next_number, in_force=self.in_force)
        state.pools, state.queues, state.projects = dict(self.pools), dict(self.queues), dict(self.projects)
        state.history = _history(self.history, self.history.groups)
        state.accounts = {name: replace(account) for name, account in self.accounts.items()}
        state.others = deepcopy(self.others)
        for node in self.nodes:
            state.add_node(_node(node))
        for job in self.jobs:
            state.add_job(_job(job))
        return state

    def with_job(self, job: Job) -> Snapshot:
        """The snapshot with one more job."""
        return replace(self, jobs=[*self.jobs, job], next_number=max(self.next_number, job.number + 1))


def take(
    state: State,
    board: Board,
    now: float,
    jobs: Iterable[str] = (),
    users: Iterable[Job] = (),
    most: int = CONSIDERED,
    ends: Ends | None = None,
) -> Snapshot:
    """Takes a snapshot. `jobs` are always included, whatever their position; so is the history for the jobs `users`.

    The board must be the scheduler's, or a separate one. It is synced with the state and not changed otherwise.
    """
    board.sync(state, now)
    state.history.hazards(())  # updates its tables
    order = QueuePositions(state, board, now).in_order(include_held=True)
    waiting = {queued.job.id: queued.job for queued in islice(order, most)}
    waiting.update({name: board.waiting.queued[name].job for name in jobs if name in board.waiting.queued})
    running = [state.jobs[name] for name in state.active]
    # Jobs that wait for others can only start if those are there too. Of the others that wait so, the first ones.
    held = (state.by_number[number] for tasks in state.tasks.values() for number in tasks.held[: -most - 1 : -1])
    others = (name for of in state.dependents.values() for name in of)
    after = _with_needs(state, [*jobs, *islice(chain(others, held), most)])
    chosen = list({job.id: job for job in (*running, *waiting.values(), *after)}.values())
    known = {job.id for job in chosen}
    arrays = {job.array for job in chosen if job.array is not None and job.array not in known}
    chosen += [state.jobs[name] for name in sorted(arrays)]
    names = {group for job in (*chosen, *users) for group in groups_of(job.user, job.spec)}
    tables = {name: table for name in sorted(names) if (table := state.history.groups.get(name)) is not None}
    fair = state.rules.between == "fair"
    return Snapshot(
        now, state.next_number, [_node(node) for node in state.nodes.values()], dict(state.pools), dict(state.queues),
        dict(state.projects), state.in_force, [_job(job) for job in chosen], _history(state.history, tables),
        {name: replace(account) for name, account in state.accounts.items()} if fair else {},
        len(board.waiting.queued) - len(waiting), ends or {}, deepcopy(state.others),
    )  # fmt: skip


def _with_needs(state: State, names: Iterable[str]) -> list[Job]:
    """These jobs, and all that they wait for, directly or not."""
    found, left = dict[str, Job](), [name for name in names if name in state.jobs]
    while left:
        job = state.jobs[left.pop()]
        if job.id not in found:
            found[job.id] = job
            left += [name for name in job.awaits if name in state.jobs]
    return sorted(found.values(), key=lambda job: job.number)


def _node(node: Node) -> Node:
    return Node(node.name, node.pool, node.total, node.labels, node.health, node.why)


def _job(job: Job) -> Job:
    found = Job(*_job_fields(job))
    if job.attempt is not None:
        found.attempt = Attempt(*_attempt_fields(job.attempt))
        found.attempt.workers = [Worker(worker.seat, worker.state, worker.exit) for worker in job.attempt.workers]
    found.key = None  # no job is submitted with a key here
    return found


def _history(history: History, groups: dict[Group, Table]) -> History:
    """A copy of the history with these groups. Copies share cached values: a copy that learns of an end drops its own
    reference to the group's cache, and the other copies keep theirs."""
    return replace(
        history,
        everyone=_table(history.everyone),
        groups={name: _table(table) for name, table in groups.items()},
        common=list(history.common),
        _new=[],
        _cached={name: history._cached.get(name, {}) for name in groups if len(name) == 2},
        _hazards={},
    )


def _table(table: Table) -> Table:
    return Table(list(table.ended), list(table.passed))
