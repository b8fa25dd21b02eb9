"""How many nodes a cluster that chooses the machines could give to each elastic gang now, from the machines' use."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence

from muster.core.attempt_events import AttemptRoom
from muster.core.event import SYSTEM, Event
from muster.core.job import Attempt, Job
from muster.core.state import State
from muster.engines.base import NodeInfo
from muster.sched.elastic import START_WAIT


def room_events(
    state: State, elastic: Iterable[str], nodes: Sequence[NodeInfo], changed: Container[str] | None, now: float
) -> list[Event]:
    """Events for the elastic gangs whose room has changed. `changed`: jobs with news; None if the nodes may have news.

    The room of a gang that starts is known only once the cluster has had its time to start it.
    """
    due: list[tuple[Job, Attempt]] = []
    for name in elastic:
        job = state.jobs.get(name)
        if job is None or not job.active or job.attempt is None or job.stop is not None:
            continue
        pool, attempt = state.pools.get(job.attempt.pool), job.attempt
        early = job.phase == "starting" and now - attempt.planned_at < START_WAIT
        full = job.phase == "running" and len(attempt.workers) == job.spec.num_nodes
        news = changed is None or name in changed or attempt.room is None
        if news and not (early or full) and pool is not None and pool.delegated:
            due.append((job, attempt))
    machines = [node for node in nodes if node.role == "machine" and node.health == "healthy"] if due else []
    events = []
    for job, attempt in due:
        room = min(_room(job, attempt, machines), job.spec.num_nodes)
        if room != attempt.room:
            events.append(Event(AttemptRoom(room), now, SYSTEM, job.project, job.id, attempt.number))
    return events


def _room(job: Job, attempt: Attempt, machines: Iterable[NodeInfo]) -> int:
    """The healthy machines where the gang is, and those with enough free for a worker. One worker per machine."""
    own = {worker.at for worker in attempt.workers if worker.state != "ended"}
    return sum(
        attempt.pool in (machine.pool, *machine.also) and (machine.name in own or _is_free(machine, job))
        for machine in machines
    )


def _is_free(machine: NodeInfo, job: Job) -> bool:
    """A machine whose use is not known does not count as free."""
    return machine.used is not None and (machine.resources - machine.used).holds(job.ask)
