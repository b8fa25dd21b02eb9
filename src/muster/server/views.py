"""The JSON form of objects in the API. The field names are part of the API and don't change."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any, cast

from muster.api.access import TokenView
from muster.api.cluster import NodeView, QueueView
from muster.api.events import EventView
from muster.api.jobs import (
    ArrayView,
    AttemptPoints,
    AttemptView,
    CheckpointMarkView,
    JobView,
    ProgressView,
    ResourcesView,
    StartView,
    WorkerView,
)
from muster.api.numbers import json_number
from muster.api.words import PHASES
from muster.core.array import array_of
from muster.core.entities import Node, Queue, Token
from muster.core.event import Event
from muster.core.job import Attempt, Job, Worker
from muster.core.reasons import Reason
from muster.core.resources import Resources
from muster.core.spec import fewest_nodes, ranks_per_node
from muster.core.state import State
from muster.store.base import Column


def job_view(
    job: Job, run: dict[str, Any], waits: Reason | None = None, phases: Mapping[str, int] | None = None
) -> JobView:
    """`waits`: why a queued job waits now. `phases`: of an array, the tasks in each phase."""
    spec = job.spec
    reason = waits or job.reason
    return {
        "id": job.id,
        "number": job.number,
        "name": job.name,
        "kind": spec.kind,
        "project": job.project,
        "queue": job.queue,
        "user": job.user,
        "phase": job.phase,
        "reason": reason.to_dict() if reason else None,
        "since": job.since,
        "submitted_at": job.submitted_at,
        "started_at": job.started_at,
        "finished_at": job.finished_at,
        "attempt": job.attempt.number if job.attempt else 0,
        "nodes": [w.node for w in job.attempt.workers if w.placed] if job.attempt else [],
        "pool": job.attempt.pool if job.attempt else "",
        "num_nodes": spec.num_nodes,
        "min_nodes": fewest_nodes(spec),
        "nproc": ranks_per_node(spec),
        "resources": resources_view(job.ask),
        "priority": job.priority,
        "restarts": job.charges,
        "checkpoint": cast(CheckpointMarkView, asdict(job.checkpoint)) if job.checkpoint else None,
        "start_from": start_view(job),
        "progress": _progress(run, running=job.phase == "running"),
        "can_save": job.phase == "running" and job.attempt is not None and run.get("listens") == job.attempt.number,
        "parent": spec.parent,
        "index": job.index,
        "array": array_view(job, phases or {}) if job.is_array else None,
        "needs": dict(job.needs),
        "purpose": spec.purpose,
        "tags": spec.tags,
        "run": spec.run,
        "workdir": spec.workdir,
    }


def start_view(job: Job) -> StartView | None:
    if job.start is None:
        return None
    return {"run": job.start.run, "step": job.start.step, "taken": job.start.taken}


def array_view(job: Job, phases: Mapping[str, int]) -> ArrayView:
    array = array_of(job)
    ordered: dict[str, int] = {phase: phases[phase] for phase in PHASES if phase in phases}
    return {
        "tasks": len(array.indexes),
        "indexes": job.spec.array or "",
        "limit": array.limit,
        "phases": ordered,
    }


def attempt_view(attempt: Attempt) -> AttemptView:
    return {
        "number": attempt.number,
        "planned_at": attempt.planned_at,
        "workers": [_worker_view(worker) for worker in attempt.workers],
        "running_at": attempt.running_at,
        "ended_at": attempt.ended_at,
        "outcome": attempt.outcome,
        "reason": attempt.reason.to_dict() if attempt.reason else None,
        "from_step": attempt.from_step,
        "pool": attempt.pool,
    }


def _worker_view(worker: Worker) -> WorkerView:
    node = worker.node if worker.placed else ""
    return {"node": node, "devices": list(worker.seat.devices), "state": worker.state, "exit": worker.exit}


def resources_view(resources: Resources) -> ResourcesView:
    return {
        "cpus": resources.milli_cpus / 1000,
        "memory": resources.memory,
        "accelerator": resources.accelerator,
        "accelerators": resources.accelerators,
        "share": resources.share,  # thousandths of each
        "accelerator_memory": resources.accelerator_memory,  # bytes of each; 0: any, or unknown
    }


def node_view(
    node: Node,
    engine: str = "",
    jobs: Iterable[str] | None = None,
    used: Resources | None = None,
    failures: int = 0,
    spare: bool = False,
) -> NodeView:
    """`jobs`, `used`: for a machine, on which the engine places workers. `used` includes all users, if it is known.

    The users of the jobs are left to the caller.
    """
    return {
        "name": node.name,
        "engine": engine,
        "role": node.role,
        "pool": node.pool,
        "health": node.health,
        "why": node.why,
        "labels": dict(node.labels),
        "total": resources_view(node.total),
        "free": resources_view(node.free if node.role != "machine" else _left(node.total, used)),
        "used": resources_view(used) if used is not None else None,
        "jobs": sorted(node.jobs if jobs is None else jobs),
        "users": [],
        "failures": failures,
        "spare": spare,
    }


def _left(total: Resources, used: Resources | None) -> Resources:
    """What is free, at least 0: an engine may assign more than there is."""
    if used is None:
        return total
    return replace(
        total,
        milli_cpus=max(total.milli_cpus - used.milli_cpus, 0),
        memory=max(total.memory - used.memory, 0),
        accelerators=max(total.accelerators - used.accelerators, 0),
    )


def queue_view(queue: Queue, state: State) -> QueueView:
    """The queue with its most important rules; all rules are in `/v1/rules`."""
    line = state.lines.get(queue.name)
    active = sum(1 for job_id in state.active if state.jobs[job_id].queue == queue.name)
    rule = state.rules.queue(queue.name)
    return {
        "name": queue.name,
        "project": queue.project,
        "min_priority": queue.min_priority,
        "max_priority": queue.max_priority,
        "order": rule.order,
        "weight": rule.weight,
        "quota": rule.quota,
        "parent": rule.parent,
        "queued": len(line) if line is not None else 0,
        "active": active,
    }


def token_view(token: Token) -> TokenView:
    return {
        "id": token.id,
        "name": token.name,
        "user": token.user,
        "role": token.role,
        "superuser": token.superuser,
        "finance": token.finance,
        "created_at": token.created_at,
        "expires_at": token.expires_at,
        "revoked_at": token.revoked_at,
    }


def event_view(event: Event) -> EventView:
    view = event.to_dict()
    view["data"] = {key: value for key, value in view["data"].items() if key not in ("digest", "doc")}
    return view


def column_view(attempt: int, column: Column, points: int | None) -> AttemptPoints:
    """At most `points` points of the column, evenly spaced, including the last one."""
    keep = _pick(len(column.steps), points)
    return {
        "attempt": attempt,
        "steps": [column.steps[i] for i in keep],
        "times": [column.times[i] for i in keep],
        "values": [json_number(column.values[i]) for i in keep],
    }


def _progress(run: dict[str, Any], running: bool) -> ProgressView | None:
    progress, latest = run.get("progress"), run.get("latest")
    if progress is None and not latest:
        return None
    names = ("step", "total", "unit", "time", "rate", "eta")
    shown = {name: (progress or {}).get(name) for name in names}
    shown["expected_total"] = (progress or {}).get("expected")
    if not running:
        shown["eta"] = shown["expected_total"] = None  # nothing is expected of a job that does not run
    return cast(ProgressView, {**shown, "metrics": latest or {}})


def _pick(count: int, points: int | None) -> Sequence[int]:
    if points is None or count <= points:
        return range(count)
    if points == 1:
        return [count - 1]
    return [round(i * (count - 1) / (points - 1)) for i in range(points)]
