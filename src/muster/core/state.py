"""`apply`: the only function that changes the state; O(1) for each event.

The state holds what is live: projects, queues, nodes, tokens and unfinished jobs. A job leaves the state with the event
that ends it; its record stays in the store. A late report of an old attempt is dropped here and nowhere else.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any, cast

from muster.api.words import Phase
from muster.core.entities import Health, Node, NodeRole, Pool, Project, Queue, Role, Token
from muster.core.event import AUDIT, Event
from muster.core.job import Attempt, CheckpointMark, Job, StopOrder, Worker
from muster.core.reasons import Reason
from muster.core.resources import Resources
from muster.core.rules import Rules
from muster.core.seat import seat_from
from muster.core.spec import JobSpec, ask
from muster.core.state_data import Changes, EntityKind, RulesInForce, State

__all__ = ["Changes", "EntityKind", "RulesInForce", "State", "apply"]


def apply(state: State, event: Event, changes: Changes | None = None) -> Changes:
    """Applies one event to the state and returns what it changed; adds to `changes` if given."""
    if changes is None:
        changes = Changes()
    _HANDLERS[event.kind](state, event, changes)
    state.version = event.seq
    if event.time > state.time:
        state.time = event.time
    return changes


def _submitted(state: State, event: Event, changes: Changes) -> None:
    data = event.data
    spec = JobSpec.model_validate(data["spec"])
    job = Job(
        event.job, data["number"], event.project, data["queue"], data["user"], spec, event.time,
        since=event.time, key=data.get("key"), ask=ask(spec), expect=data.get("expect"),
        code=(data.get("code") or {}).get("tree", ""), trusted=bool(data.get("trusted")),
    )  # fmt: skip
    if not spec.num_nodes:
        job.phase, job.started_at = "running", event.time
    state.add_job(job)
    changes.jobs[job.id] = job


def _resumed(state: State, event: Event, changes: Changes) -> None:
    job = Job.from_doc(event.data["doc"], JobSpec.model_validate(event.data["spec"]))
    job.finished_at, job.stop, job.charges, job.not_before, job.ran, job.claim = None, None, {}, 0.0, 0.0, ()
    job.reason = Reason.of(event.data["reason"])
    job.phase, job.since = "running" if job.seatless else "queued", event.time
    if job.attempt is not None and not job.attempt.pool:  # a document of the first release
        job.attempt.pool = _pool(state, job.attempt.workers)
    state.add_job(job)
    changes.jobs[job.id] = job


def _planned(state: State, event: Event, changes: Changes) -> None:
    job = state.jobs[event.job]
    state.dequeue(job)
    workers = [Worker(seat_from(seat)) for seat in event.data["seats"]]
    from_step = job.checkpoint.step if job.checkpoint else None
    pool = _pool(state, workers)
    job.attempt = Attempt(event.attempt, event.time, workers, from_step=from_step, pool=pool)
    job.reason, job.not_before = None, 0.0
    job.waited += event.time - job.since
    _enter(job, "starting", event, changes)
    state.active[job.id] = None
    state.hold(job)
    _charge(state, job, +1, event, changes)


def _pool(state: State, workers: list[Worker]) -> str:
    first = state.nodes.get(workers[0].seat.node) if workers else None
    return first.pool if first is not None else ""


def _charge(state: State, job: Job, sign: int, event: Event, changes: Changes) -> None:
    name, account = state.charge(job, sign, event.time)
    changes.entities[("account", name)] = account


def _claimed(state: State, event: Event, changes: Changes) -> None:
    job = state.jobs.get(event.job)
    if job is None or (job.phase != "queued" and (job.stop is None or job.stop.then != "queued")):
        return
    job.claim = tuple(seat_from(seat) for seat in event.data["seats"])
    state.journal.note("job", job.id)
    changes.jobs[job.id] = job


def _running(state: State, event: Event, changes: Changes) -> None:
    job = _current(state, event)
    if job is None or job.attempt is None or job.attempt.running_at is not None:
        return
    job.attempt.running_at, job.reason = event.time, job.stop.reason if job.stop else None
    for worker in job.attempt.workers:
        if worker.state == "starting":
            worker.state = "running"
    state.journal.note("job", job.id)
    job.started_at = job.started_at or event.time
    if job.phase == "starting":
        _enter(job, "running", event, changes)
    _touch(job, changes)


def _worker_running(state: State, event: Event, changes: Changes) -> None:
    job = _current(state, event)
    if job is not None and job.attempt is not None:
        worker = job.attempt.workers[event.data["worker"]]
        if worker.state == "starting":
            worker.state = "running"
            _touch(job, changes)


def _worker_placed(state: State, event: Event, changes: Changes) -> None:
    job = _current(state, event)
    if job is not None and job.attempt is not None:
        job.attempt.workers[event.data["worker"]].at = event.data["node"]
        _touch(job, changes)


def _attempt_waits(state: State, event: Event, changes: Changes) -> None:
    job = _current(state, event)
    if job is not None and job.phase == "starting":
        job.reason = Reason.of(event.data["reason"])
        _touch(job, changes)


def _worker_ended(state: State, event: Event, changes: Changes) -> None:
    job = _current(state, event)
    if job is not None and job.attempt is not None:
        worker = job.attempt.workers[event.data["worker"]]
        if worker.state != "ended":
            worker.state, worker.exit = "ended", event.data["exit"]
            _touch(job, changes)


def _attempt_ended(state: State, event: Event, changes: Changes) -> None:
    job = _current(state, event)
    if job is None or job.attempt is None or job.attempt.ended_at is not None:
        return
    attempt = job.attempt
    attempt.ended_at, attempt.outcome = event.time, event.data["outcome"]
    attempt.reason = Reason.of(event.data["reason"])
    if attempt.running_at is not None:
        job.ran += event.time - attempt.running_at
    state.release(job)
    _charge(state, job, -1, event, changes)
    name, ledger = state.enter(job, event.time)
    changes.entities[("ledger", name)] = ledger
    _touch(job, changes)


def _requeued(state: State, event: Event, changes: Changes) -> None:
    job = state.jobs[event.job]
    charge = event.data["charge"]
    job.charges = {**job.charges, charge: job.charges.get(charge, 0) + 1}
    job.reason, job.not_before, job.stop = Reason.of(event.data["reason"]), event.data["not_before"], None
    _enter(job, "queued", event, changes)
    state.enqueue(job)


def _stopping(state: State, event: Event, changes: Changes) -> None:
    job = state.jobs.get(event.job)
    if job is None or not job.active:
        return
    job.stop = StopOrder(Reason.of(event.data["reason"]), event.data["then"], event.data["grace"], event.time)
    job.reason = job.stop.reason
    _enter(job, "stopping", event, changes)
    state.journal.note("job", job.id)


def _finished(state: State, event: Event, changes: Changes) -> None:
    job = state.jobs.get(event.job)
    if job is None:
        return
    if job.phase == "queued":
        state.dequeue(job)
    job.reason, job.finished_at = Reason.of(event.data["reason"]), event.time
    _enter(job, cast(Phase, event.kind.removeprefix("job.")), event, changes)
    state.remove(job)
    state.learn(job)


def _checkpoint(state: State, event: Event, changes: Changes) -> None:
    job = _current(state, event)
    if job is None or (job.checkpoint is not None and job.checkpoint.step > event.data["step"]):
        return
    data = event.data
    job.checkpoint = CheckpointMark(data["step"], data["path"], event.time, data["bytes"], event.attempt)
    state.journal.note("job", job.id)
    changes.jobs[job.id] = job


def _node_joined(state: State, event: Event, changes: Changes) -> None:
    data = event.data
    old = state.find_node(data["name"])
    role = cast(NodeRole, data.get("role", "node"))
    node = Node(data["name"], data["pool"], Resources(**data["resources"]), dict(data["labels"]), role=role)
    if old is not None:
        node.health, node.why, node.by = old.health, old.why, old.by
    state.add_node(node)
    changes.entities[("node", node.name)] = node


def _node_left(state: State, event: Event, changes: Changes) -> None:
    state.drop_node(event.data["name"])
    changes.entities[("node", event.data["name"])] = None


def _node_health(state: State, event: Event, changes: Changes) -> None:
    node = state.find_node(event.data["name"])
    if node is None:
        return
    node.health, node.why = cast(Health, event.data["health"]), event.data["reason"]
    node.by = event.data.get("by", event.actor)
    state.journal.note("node", node.name)
    changes.entities[("node", node.name)] = node


def _pool_set(state: State, event: Event, changes: Changes) -> None:
    pool = state.pools[event.data["name"]] = Pool(**event.data)
    state.journal.note("entity", pool.name)
    changes.entities[("pool", pool.name)] = pool


def _queue_set(state: State, event: Event, changes: Changes) -> None:
    known = {name: value for name, value in event.data.items() if name in _QUEUE}  # older logs have more fields
    queue = state.queues[event.data["name"]] = Queue(**known)
    state.journal.note("entity", queue.name)
    changes.entities[("queue", queue.name)] = queue


def _project_set(state: State, event: Event, changes: Changes) -> None:
    project = state.projects[event.data["name"]] = Project(**event.data)
    state.journal.note("entity", project.name)
    changes.entities[("project", project.name)] = project


def _project_member(state: State, event: Event, changes: Changes) -> None:
    project = state.projects[event.data["name"]]
    members = {user: role for user, role in project.members.items() if user != event.data["user"]}
    if event.data["role"] is not None:
        members[event.data["user"]] = cast(Role, event.data["role"])
    project = state.projects[project.name] = replace(project, members=members)
    changes.entities[("project", project.name)] = project


def _rules_set(state: State, event: Event, changes: Changes) -> None:
    state.in_force = RulesInForce(Rules.model_validate(event.data["rules"]), event.data["text"])
    state.journal.note("entity", "rules")
    changes.entities[("rules", "")] = state.in_force


def _token_created(state: State, event: Event, changes: Changes) -> None:
    token = state.tokens[event.data["id"]] = Token(**event.data, created_at=event.time)
    changes.entities[("token", token.id)] = token


def _token_revoked(state: State, event: Event, changes: Changes) -> None:
    token = state.tokens[event.data["id"]] = replace(state.tokens[event.data["id"]], revoked_at=event.time)
    changes.entities[("token", token.id)] = token


def _noted(state: State, event: Event, changes: Changes) -> None:
    """An event for the log only. It does not change the state."""


def _current(state: State, event: Event) -> Job | None:
    """The event's job, if the event is about its current attempt; else None. This drops late reports."""
    job = state.jobs.get(event.job)
    if job is None or job.attempt is None or job.attempt.number != event.attempt or not job.active:
        return None
    return job


def _enter(job: Job, phase: Phase, event: Event, changes: Changes) -> None:
    job.phase, job.since = phase, event.time
    _touch(job, changes)


def _touch(job: Job, changes: Changes) -> None:
    changes.jobs[job.id] = job
    if job.attempt is not None:
        changes.attempts[(job.id, job.attempt.number)] = job.attempt


_QUEUE = {one.name for one in fields(Queue)}
_HANDLERS: dict[str, Callable[[State, Event, Changes], Any]] = {
    "job.submitted": _submitted,
    "job.resumed": _resumed,
    "job.stopping": _stopping,
    "job.claimed": _claimed,
    "job.waits": _noted,
    "job.forecast": _noted,
    "job.requeued": _requeued,
    "job.succeeded": _finished,
    "job.failed": _finished,
    "job.stopped": _finished,
    "attempt.planned": _planned,
    "attempt.running": _running,
    "attempt.ended": _attempt_ended,
    "attempt.waits": _attempt_waits,
    "worker.placed": _worker_placed,
    "worker.running": _worker_running,
    "worker.ended": _worker_ended,
    "checkpoint.committed": _checkpoint,
    "node.joined": _node_joined,
    "node.left": _node_left,
    "node.health": _node_health,
    "pool.set": _pool_set,
    "queue.set": _queue_set,
    "rules.set": _rules_set,
    "project.set": _project_set,
    "project.member": _project_member,
    "token.created": _token_created,
    "token.revoked": _token_revoked,
    "secret.set": _noted,
    "secret.removed": _noted,
    "server.leads": _noted,
    "run.purged": _noted,
    **dict.fromkeys(AUDIT, _noted),
}
