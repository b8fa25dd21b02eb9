"""For tests of stores: the log folded from scratch, pictures of states to compare, and random, sensible histories."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from random import Random
from typing import Any

from muster.core.entities.ledger import Use
from muster.core.entities.node import NodeHealth, NodeLeft
from muster.core.entities.pool import PoolSet
from muster.core.entities.project import ProjectMember, ProjectSet
from muster.core.entities.queue import QueueSet
from muster.core.entities.token import TokenRevoked
from muster.core.event import Event
from muster.core.job import Job
from muster.core.job_events import JobRequeued
from muster.core.payload import decode
from muster.core.reasons import reason
from muster.core.state import State, apply
from muster.store.base import EventFilter, JobFilter, Store
from muster.store.codec import dumps, loads
from scheduler_kit import job_event, node_event

EVERYTHING = 1_000_000


@dataclass
class Folded:
    """What the log alone says: the state, and the last record of every job and attempt that there ever was."""

    state: State = field(default_factory=State)
    jobs: dict[str, Any] = field(default_factory=dict)
    attempts: dict[str, dict[int, Any]] = field(default_factory=dict)


def fold_log(store: Store) -> Folded:
    folded = Folded()
    for event in store.events(EventFilter(limit=EVERYTHING)):
        changes = apply(folded.state, event)
        for job in changes.jobs.values():
            folded.jobs[job.id] = record(job)
            if job.attempt is not None:
                folded.attempts.setdefault(job.id, {})[job.attempt.number] = plain(job.attempt.to_doc())
    return folded


def check_against_log(store: Store) -> None:
    """The live state and every table that reads use are exactly what the log folds into."""
    folded = fold_log(store)
    assert picture(store.state()) == picture(folded.state)
    stored = {job.id: record(job) for job in store.jobs(JobFilter(limit=EVERYTHING))}
    assert stored == folded.jobs
    attempts = {job_id: {a.number: plain(a.to_doc()) for a in store.attempts(job_id)} for job_id in folded.attempts}
    assert attempts == folded.attempts


def used_by_attempts(store: Store) -> dict[str, Use]:
    """What the ended attempts of all jobs used, by project and pool: the sum that the ledgers must have."""
    found: dict[str, Use] = {}
    for job in store.jobs(JobFilter(limit=EVERYTHING)):
        for one in store.attempts(job.id):
            if one.ended_at is not None:
                use = found.setdefault(f"{job.project}/{one.pool}", Use())
                ms = (round(one.ended_at * 1000) - round(one.planned_at * 1000)) * len(one.workers)
                use.node_ms += ms
                use.accelerator_us += ms * round(job.ask.weight * 1000)
                use.cpu_us += ms * job.ask.milli_cpus
    return found


def record(job: Job) -> Any:
    return plain({"doc": job.to_doc(), "spec": job.spec.model_dump(mode="json"), "ask": asdict(job.ask)})


def picture(state: State) -> dict[str, Any]:
    """All that a state says, but for what is only remembered: run times, and keys of jobs that ended."""
    return {
        "version": state.version,
        "time": state.time,
        "next_number": state.next_number,
        "estate": {
            name: {key: plain(value) for key, value in getattr(state, name).items()}
            for name in ("projects", "queues", "pools", "machines", "tokens", "others")
        },
        "nodes": {name: {**plain(node), "jobs": sorted(node.jobs)} for name, node in state.nodes.items()},
        "jobs": {job_id: record(job) for job_id, job in state.jobs.items()},
        "lines": {name: sorted(line) for name, line in state.lines.items() if line},
        "active": list(state.active),
        "seatless": sorted(state.seatless),
        "dependents": {name: sorted(jobs) for name, jobs in state.dependents.items()},
        "tasks": {name: plain(tasks) for name, tasks in state.tasks.items()},
        "settled": sorted(state.settled),
        "live": dict(state.live),
        "keys": {key: job_id for key, job_id in state.keys.items() if job_id in state.jobs},
        "by_number": dict(state.by_number),
        "rules": plain(state.in_force),
        "ledgers": {name: plain(ledger) for name, ledger in state.ledgers.items()},
        "accounts": {name: plain(account) for name, account in state.accounts.items()},
    }


def plain(value: Any) -> Any:
    """As JSON has it: tuples are lists, and so on."""
    return loads(dumps(value))


class History:
    """Random entries, each of which makes sense after those before it. Times grow with every one."""

    def __init__(self, random: Random, time: float = 1000.0) -> None:
        self._random = random
        self._time = time

    def entry(self, store: Store) -> list[Event]:
        """Some events to append to the store as it is now."""
        self._time += self._random.choice([0.25, 1.0, 60.0])
        state = store.state()
        moves = [
            self._submit,
            self._submit,
            self._plan,
            self._plan,
            self._progress,
            self._progress,
            self._end,
            self._end,
        ]
        moves += [self._entities, self._node, self._stop, self._late, self._priority]
        events = self._random.choice(moves)(state)
        if not events:
            ended = store.jobs(JobFilter(phases=["failed", "stopped"], limit=5))
            over = [job for job in ended if job.id not in state.jobs]  # one may be back in this very transaction
            events = self._resume(self._random.choice(over)) if over else self._submit(state)
        return events

    def nonsense(self) -> list[Event]:
        """What no proposal should ever ask for."""
        return [Event(JobRequeued(reason("node_lost"), "node", 0.0), self._time, job="nobody")]

    def _submit(self, state: State) -> list[Event]:
        number = state.next_number
        priority, queue = self._random.choice([20, 50, 75]), self._random.choice(["default", "q1"])
        nodes, gpus = self._random.randint(1, 3), self._random.randint(0, 2)
        kind = {"kind": "sweep", "num_nodes": 0} if self._random.random() < 0.1 else {"num_nodes": nodes}
        event = job_event(number, priority=priority, queue=queue, gpus=gpus, cpus=1, **kind)
        key = f"key-{number}" if self._random.random() < 0.3 else None
        return [Event(replace(event.data, key=key), self._time, "ada", "default", event.job)]

    def _plan(self, state: State) -> list[Event]:
        queued = [job for job in state.jobs.values() if job.phase == "queued"]
        if not queued:
            return self._node(state)
        job = self._random.choice(queued)
        fitting = [node for node in state.nodes.values() if node.free.holds(job.ask)]
        if len(fitting) < job.spec.num_nodes:
            return self._join(state)
        seats = []
        for node in self._random.sample(fitting, job.spec.num_nodes):
            free = [i for i in range(node.total.accelerators) if node.free_devices >> i & 1]
            seats.append({"node": node.name, "devices": free[: job.ask.accelerators]})
        number = job.attempt.number + 1 if job.attempt else 1
        return [self._of(job, "attempt.planned", number, seats=seats)]

    def _progress(self, state: State) -> list[Event]:
        job = self._active(state)
        if job is None:
            return []
        assert job.attempt is not None
        number, worker = job.attempt.number, self._random.randrange(len(job.attempt.workers))
        exit_ = {"outcome": "failed", "reason": "user_error", "detail": "résumé ✓ \0", "ranks": [], "time": self._time}
        return [
            self._random.choice([
                self._of(job, "worker.running", number, worker=worker),
                self._of(job, "worker.ended", number, worker=worker, exit=exit_),
                self._of(job, "attempt.running", number),
                self._of(job, "checkpoint.committed", number, step=self._random.randrange(9), path="/c", bytes=7),
            ])
        ]  # fmt: skip

    def _end(self, state: State) -> list[Event]:
        """The attempt and what follows from its end come together, as the controller has it."""
        job = self._active(state)
        if job is None:
            return []
        assert job.attempt is not None
        why = reason("node_lost", node="n1").to_dict()
        events = [self._of(job, "attempt.ended", job.attempt.number, outcome="failed", reason=why)]
        if self._random.random() < 0.5:
            later = self._random.choice([0.0, self._time + 10])
            return [*events, self._of(job, "job.requeued", 0, reason=why, charge="node", not_before=later)]
        return [
            *events,
            self._of(job, self._random.choice(["job.succeeded", "job.failed", "job.stopped"]), 0, reason=why),
        ]

    def _stop(self, state: State) -> list[Event]:
        if not state.jobs:
            return []
        why, job = reason("user_stop").to_dict(), self._active(state)
        if job is None or self._random.random() < 0.5:
            job = self._random.choice(list(state.jobs.values()))
        if job.phase == "queued" or job.seatless:
            return [self._of(job, "job.stopped", 0, reason=why)]
        return [self._of(job, "job.stopping", 0, reason=why, then="stopped", grace=30.0)]

    def _priority(self, state: State) -> list[Event]:
        job = self._random.choice(list(state.jobs.values())) if state.jobs else None
        return [self._of(job, "job.priority", 0, priority=self._random.randrange(101), reason="drill")] if job else []

    def _late(self, state: State) -> list[Event]:
        """A report of an attempt that is long over: it changes nothing, but it is in the log."""
        job = self._active(state)
        return [self._of(job, "attempt.running", job.attempt.number - 1)] if job and job.attempt else []

    def _resume(self, job: Job) -> list[Event]:
        data = {"doc": job.to_doc(), "spec": job.spec.model_dump(mode="json"), "user": "ada"}
        return [self._of(job, "job.resumed", 0, **data, reason=reason("resumed").to_dict())]

    def _node(self, state: State) -> list[Event]:
        if state.nodes and self._random.random() < 0.2:
            return [Event(NodeLeft(name=self._random.choice(list(state.nodes))), self._time)]
        if state.nodes and self._random.random() < 0.5:
            name, health = (
                self._random.choice(list(state.nodes)),
                self._random.choice(["healthy", "suspect", "draining"]),
            )
            return [Event(NodeHealth(name=name, health=health, reason="drill"), self._time)]
        return self._join(state)

    def _join(self, state: State) -> list[Event]:
        """A new node, or a known one that says other things of itself than before."""
        if state.nodes and self._random.random() < 0.3:
            node = self._random.choice(list(state.nodes.values()))
            resources = {**asdict(node.total), "milli_cpus": node.total.milli_cpus + 1000}
            data = {"name": node.name, "pool": node.pool, "resources": resources, "labels": {"rack": "r1"}}
            return [Event(decode("node.joined", data), self._time)]
        event = node_event(f"n{state.version}", self._random.randint(0, 4), 8)
        return [Event(event.data, self._time)]

    def _entities(self, state: State) -> list[Event]:
        name = f"x{state.version}"
        token = {
            "id": name,
            "name": name,
            "user": "ada",
            "digest": "d",
            "role": "member",
            "superuser": False,
            "expires_at": None,
        }
        valid = [token.id for token in state.tokens.values() if token.revoked_at is None]
        choices = [
            Event(ProjectSet(name=name, members={"ada": "admin"}), self._time),
            Event(QueueSet(name=name, max_priority=60), self._time),
            Event(PoolSet(name=name, spot=True), self._time),
            Event(decode("token.created", token), self._time),
            *(Event(TokenRevoked(id=id_), self._time) for id_ in valid[:1]),
            *(
                Event(ProjectMember(name=project, user="bob", role=role), self._time)
                for project in list(state.projects)[:1]
                for role in ("viewer", None)
            ),
        ]
        return [self._random.choice(choices)]

    def _active(self, state: State) -> Job | None:
        return state.jobs[self._random.choice(list(state.active))] if state.active else None

    def _of(self, job: Job, kind: str, attempt: int, **data: Any) -> Event:
        return Event(decode(kind, data), self._time, "muster", job.project, job.id, attempt)
