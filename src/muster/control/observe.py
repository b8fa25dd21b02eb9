"""Turns the engine's reports into events: nodes that joined or left, and workers that ended without reporting it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType

from muster.control.watch import GONE_AFTER, LOST_AFTER, LastReport, Watch
from muster.core.attempt_events import AttemptRunning, AttemptWaits, WorkerEnded, WorkerPlaced, WorkerRunning
from muster.core.entities.node import ENGINE, Node, NodeHealth, NodeJoined, NodeLeft
from muster.core.entities.pool import PoolSet
from muster.core.event import SYSTEM, Event
from muster.core.job import Attempt, Job
from muster.core.reasons import Reason, reason
from muster.core.state import State
from muster.engines.base import NodeInfo, PoolInfo, Wait, WorkerReport
from muster.sched.elastic import START_WAIT
from muster.wire import WorkerExit

ESTIMATE_GRAIN = 60.0  # seconds by which an estimated start must move to be recorded


def node_events(
    state: State,
    nodes: Sequence[NodeInfo],
    engine: str,
    now: float,
    has_reported: Callable[[str], bool] | None = None,
    pools: Mapping[str, PoolInfo] = MappingProxyType({}),
) -> list[Event]:
    """Nodes that joined, changed or left, and the pools that they belong to.

    `has_reported`, `pools`: see `engines.base.Several`.
    """
    events = _pool_events(state, nodes, engine, now, pools)
    listed = set()
    for node in nodes:
        listed.add(node.name)
        known = state.find_node(node.name)
        if known is None or _differs(known, node):
            events.append(Event(NodeJoined(node.name, node.pool, node.resources, dict(node.labels), node.role), now))
        events.extend(_health_events(known, node, now))
    ours = {
        pool.name
        for pool in state.pools.values()
        if (has_reported(pool.engine) if has_reported else pool.engine == engine)
    }
    for known in [*state.nodes.values(), *state.machines.values()]:
        if known.pool in ours and known.name not in listed:
            events.extend(_lose(state, known, now))
            events.append(Event(NodeLeft(known.name), now))
    return events


def _pool_events(
    state: State, nodes: Sequence[NodeInfo], engine: str, now: float, pools: Mapping[str, PoolInfo]
) -> list[Event]:
    """Pools that are new, belong to another engine, or whose engine went away or came back."""
    # The engine, whether it chooses the machines, and then how many it has and how many of them are in service.
    found: dict[str, tuple[str, bool, int, int | None]] = {}
    for name, info in pools.items():
        known = state.pools.get(name)
        kept = (known.delegated, known.machines, known.usable) if known is not None else (False, 0, None)
        found[name] = (info.engine, *kept)
    broken = Counter[str]()
    for node in nodes:
        if node.role == "machine" and node.health != "healthy":
            broken.update((node.pool, *node.also))
    listed = set[str]()
    for node in nodes:
        if node.role != "machine" or node.pool not in listed:
            listed.add(node.pool)
            usable = max(node.machines - broken[node.pool], 0) if node.role == "slot" else None
            found[node.pool] = (node.engine or engine, node.role != "node", node.machines, usable)
    events = []
    for name, (owner, delegated, machines, usable) in sorted(found.items()):
        known, away = state.pools.get(name), pools[name].away if name in pools else ""
        there = (known.engine, known.delegated, known.machines, known.usable, bool(known.away)) if known else None
        if there != (owner, delegated, machines, usable, bool(away)):
            count = machines if delegated else 0
            events.append(Event(PoolSet(name, owner, delegated, away=away, machines=count, usable=usable), now))
    return events


def _differs(known: Node, node: NodeInfo) -> bool:
    same = known.total == node.resources and known.pool == node.pool and known.labels == node.labels
    return not same or known.role != node.role


def _health_events(known: Node | None, node: NodeInfo, now: float) -> list[Event]:
    """An event if the engine's view of the node's health has changed. A health that a user set takes precedence."""
    health, by = (known.health, known.by) if known is not None else ("healthy", "")
    if health != "healthy" and by != ENGINE:
        return []
    why = node.why if node.health != "healthy" else ""
    if health == node.health and (known is None or known.why == why):
        return []
    return [Event(NodeHealth(node.name, node.health, why, ENGINE), now)]


def worker_events(
    state: State,
    job_ids: Iterable[str],
    watch: Watch,
    patience: float,
    now: float,
    known: Callable[[str], bool] = lambda pool: True,
) -> list[Event]:
    """Workers of these jobs that run, and workers that ended according to the engine but did not report it in time.

    A worker has `patience` seconds to report its end itself. `known`: whether the engine's list of workers in a pool is
    complete, so that a worker that it does not list is gone.
    """
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
            if report is not None:
                if report.node and report.node != worker.at:
                    events.append(worker_placed(job, index, report.node, now))
                if report.status == "running" and worker.state == "starting":
                    running.add(index)
            elif sighting is not None and not known(job.attempt.pool):
                continue
            found = _found(job, worker.state, sighting, patience, now)
            if found is not None:
                events.append(worker_ended(job, index, found, now))
        if running:
            events.extend(workers_running(job, running, now))
    return events


def workers_running(job: Job, started: set[int], now: float) -> list[Event]:
    """Events for workers that have started their ranks. When the last one has, a single event reports the attempt."""
    assert job.attempt is not None
    about = (SYSTEM, job.project, job.id, job.attempt.number)
    if all(w.state != "starting" or i in started for i, w in enumerate(job.attempt.workers)):
        return [Event(AttemptRunning(), now, *about)]
    return [Event(WorkerRunning(index), now, *about) for index in sorted(started)]


def worker_ended(job: Job, worker: int, end: WorkerExit, now: float) -> Event:
    assert job.attempt is not None
    return Event(WorkerEnded(worker, end.to_dict()), now, SYSTEM, job.project, job.id, job.attempt.number)


def worker_placed(job: Job, worker: int, node: str, now: float) -> Event:
    assert job.attempt is not None
    return Event(WorkerPlaced(worker, node), now, SYSTEM, job.project, job.id, job.attempt.number)


def wait_events(state: State, waits: Iterable[Wait], now: float) -> list[Event]:
    """Events for gangs in an engine's own queue whose reason to wait has changed."""
    events = []
    for wait in waits:
        job = state.jobs.get(wait.job)
        if job is None or job.phase != "starting" or job.attempt is None or job.attempt.number != wait.attempt:
            continue
        hint = wait.hint or _fewer(job, job.attempt)
        found = reason("engine_queue", wait.message, hint, engine_reason=wait.code, starts_at=wait.starts_at)
        if not _same_wait(job.reason, found):
            events.append(Event(AttemptWaits(found), now, SYSTEM, job.project, job.id, wait.attempt))
    return events


def _fewer(job: Job, attempt: Attempt) -> str:
    """What follows for an elastic gang in an engine's queue; "" for others."""
    fewest = job.spec.min_nodes
    if fewest is None or len(attempt.workers) <= fewest:
        return ""
    if attempt.room is not None and attempt.room < fewest:
        return f"The cluster has {attempt.room} nodes free for it, and it needs {fewest} at least."
    return f"It asks for fewer nodes, {fewest} at least, if the cluster has not started it after {START_WAIT:.0f} s."


def _same_wait(old: Reason | None, new: Reason) -> bool:
    """Whether the reason is unchanged; an estimated start that moved by less than a minute counts as the same."""
    if old is None or (old.code, old.message, old.hint) != (new.code, new.message, new.hint):
        return False
    before, after = old.data.get("starts_at"), new.data["starts_at"]
    return before == after or (before is not None and after is not None and abs(before - after) < ESTIMATE_GRAIN)


def _found(job: Job, state: str, sighting: LastReport | None, patience: float, now: float) -> WorkerExit | None:
    """The end of a worker, if the last sighting means that it has ended."""
    report, seen = (sighting.report, now - sighting.since) if sighting is not None else (None, 0.0)
    if job.stop is not None and state == "starting":
        return _never_started(report, job.stop.reason.code, seen, patience, now)
    return _end_of(report, state, seen, patience, now) if sighting is not None else None


def _end_of(report: WorkerReport | None, state: str, seen: float, patience: float, now: float) -> WorkerExit | None:
    """The end of a worker that was launched. `seen`: for how many seconds the report has been the same."""
    if report is None:
        gone = state == "running" and seen >= min(patience, GONE_AFTER)
        return WorkerExit("failed", "launcher_lost", "the engine does not know the worker", now) if gone else None
    if report.status == "ended" and report.exit is not None and (report.sure or seen >= patience):
        return report.exit
    if report.status == "lost" and seen >= min(patience, LOST_AFTER):
        return WorkerExit("failed", "launcher_lost", "the launcher was killed and left no word", now)
    return None


def _never_started(
    report: WorkerReport | None, reason: str, seen: float, patience: float, now: float
) -> WorkerExit | None:
    """The end of a worker of a gang that was told to stop before its launcher came up.

    One thread makes both launches and polls, so a worker that the engine doesn't know will not appear any more.
    """
    if report is None or (report.status == "starting" and seen >= min(patience, GONE_AFTER)):
        return WorkerExit("stopped", reason, "stopped before it was launched", now)
    return _end_of(report, "starting", seen, patience, now)


def _lose(state: State, node: Node, now: float) -> list[Event]:
    """Ends the workers on a node that left. A slot that left has no workers: the machines are separate nodes."""
    if node.role == "slot":
        return []
    end = WorkerExit("failed", "node_lost", f"{node.name} is gone", now)
    events = []
    for job_id in sorted(node.jobs) if node.role == "node" else list(state.active):
        job = state.jobs[job_id]
        for index, worker in enumerate(job.attempt.workers if job.attempt else ()):
            if worker.node == node.name and worker.state != "ended":
                events.append(worker_ended(job, index, end, now))
    return events
