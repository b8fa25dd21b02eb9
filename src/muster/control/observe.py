"""What the engine's reports mean for the state: nodes that came or went, workers that ended without a word."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict

from muster.control.watch import GONE_AFTER, LOST_AFTER, Sighting, Watch
from muster.core.event import SYSTEM, Event
from muster.core.job import Job
from muster.core.state import State
from muster.engines.base import NodeInfo, WorkerReport
from muster.wire import WorkerExit


def node_events(state: State, nodes: Sequence[NodeInfo], engine: str, now: float) -> list[Event]:
    """Nodes that joined, changed or left, and the pools that they belong to."""
    events = []
    for pool in sorted({node.pool for node in nodes} - state.pools.keys()):
        events.append(Event("pool.set", now, SYSTEM, data={"name": pool, "engine": engine}))
    listed = set()
    for node in nodes:
        listed.add(node.name)
        known = state.nodes.get(node.name)
        if known is None or known.total != node.resources or known.pool != node.pool or known.labels != node.labels:
            data = {
                "name": node.name,
                "pool": node.pool,
                "resources": asdict(node.resources),
                "labels": dict(node.labels),
            }
            events.append(Event("node.joined", now, SYSTEM, data=data))
    ours = {pool.name for pool in state.pools.values() if pool.engine == engine}
    for node_name in [n.name for n in state.nodes.values() if n.pool in ours and n.name not in listed]:
        events.extend(_lose(state, node_name, now))
        events.append(Event("node.left", now, SYSTEM, data={"name": node_name}))
    return events


def worker_events(state: State, job_ids: Iterable[str], watch: Watch, patience: float, now: float) -> list[Event]:
    """Workers of these jobs that run, and ends that the engine knows of and the workers did not tell within their
    `patience`."""
    events: list[Event] = []
    for job_id in job_ids:
        job = state.jobs.get(job_id)
        if job is None or not job.active or job.attempt is None:
            continue
        seen = watch.of(job_id, job.attempt.number)
        running: set[int] = set()
        for index, worker in enumerate(job.attempt.workers):
            if worker.state == "ended":
                continue
            sighting = seen.get(index)
            report = sighting.report if sighting is not None else None
            if report is not None and report.status == "running" and worker.state == "starting":
                running.add(index)
            found = _found(job, worker.state, sighting, patience, now)
            if found is not None:
                events.append(worker_ended(job, index, found, now))
        if running:
            events.extend(workers_running(job, running, now))
    return events


def workers_running(job: Job, started: set[int], now: float) -> list[Event]:
    """Workers that have started their ranks; with the last of them the attempt runs, and that says it of all."""
    assert job.attempt is not None
    about = (SYSTEM, job.project, job.id, job.attempt.number)
    if all(w.state != "starting" or i in started for i, w in enumerate(job.attempt.workers)):
        return [Event("attempt.running", now, *about)]
    return [Event("worker.running", now, *about, {"worker": index}) for index in sorted(started)]


def worker_ended(job: Job, worker: int, end: WorkerExit, now: float) -> Event:
    assert job.attempt is not None
    data = {"worker": worker, "exit": end.to_dict()}
    return Event("worker.ended", now, SYSTEM, job.project, job.id, job.attempt.number, data)


def _found(job: Job, state: str, sighting: Sighting | None, patience: float, now: float) -> WorkerExit | None:
    """The end of a worker, if what was last heard of it comes to that."""
    report, seen = (sighting.report, now - sighting.since) if sighting is not None else (None, 0.0)
    if job.stop is not None and state == "starting":
        return _never_started(report, job.stop.reason.code, seen, patience, now)
    return _end_of(report, state, seen, patience, now) if sighting is not None else None


def _end_of(report: WorkerReport | None, state: str, seen: float, patience: float, now: float) -> WorkerExit | None:
    """`seen`: for how many seconds the report has been saying so."""
    if report is None:
        gone = state == "running" and seen >= min(patience, GONE_AFTER)
        return WorkerExit("failed", "launcher_lost", "the engine does not know the worker", now) if gone else None
    if report.status == "ended" and report.exit is not None and seen >= patience:
        return report.exit
    if report.status == "lost" and seen >= min(patience, LOST_AFTER):
        return WorkerExit("failed", "launcher_lost", "the launcher was killed and left no word", now)
    return None


def _never_started(
    report: WorkerReport | None, reason: str, seen: float, patience: float, now: float
) -> WorkerExit | None:
    """A gang that was told to stop before its launcher came up: launches and polls are made by one thread, so a worker
    that the engine does not know will not appear any more."""
    if report is None or (report.status == "starting" and seen >= min(patience, GONE_AFTER)):
        return WorkerExit("stopped", reason, "stopped before it was launched", now)
    return _end_of(report, "starting", seen, patience, now)


def _lose(state: State, node: str, now: float) -> list[Event]:
    end = WorkerExit("failed", "node_lost", f"{node} is gone", now)
    events = []
    for job_id in sorted(state.nodes[node].jobs):
        job = state.jobs[job_id]
        for index, worker in enumerate(job.attempt.workers if job.attempt else ()):
            if worker.seat.node == node and worker.state != "ended":
                events.append(worker_ended(job, index, end, now))
    return events
