"""The entities of a simulation: nodes and pools from the cluster; projects, queues and job specs from the trace."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from muster.core.entities.pool import PoolSet
from muster.core.entities.price_book import PricesSet
from muster.core.entities.project import ProjectSet
from muster.core.entities.queue import QueueSet
from muster.core.entities.rules_in_force import RulesSet
from muster.core.event import Event
from muster.core.resources import Resources
from muster.core.spec import Checkpoint, JobSpec, WorkerResources
from muster.core.units import mended_name
from muster.engines.base import NodeInfo
from muster.sim.model import DEFAULT, Cluster, PoolShape, Setup, TraceJob

ENGINE: Final = "sim"
_SHORTEST: Final = 0.001  # seconds: a job can't declare a run time of 0


def nodes_of(cluster: Cluster) -> list[NodeInfo]:
    return [node for pool in cluster.pools for node in _nodes(pool)]


def opening(trace: Iterable[TraceJob], setup: Setup, now: float) -> list[Event]:
    """The events that create everything except the nodes, which the engine reports."""
    owners = {DEFAULT: DEFAULT}  # queue → project of the first job in it
    for job in trace:
        owners.setdefault(job.queue or DEFAULT, job.project or DEFAULT)
    for study in setup.studies:
        owners.setdefault(study.queue, study.project)
    projects = dict.fromkeys([DEFAULT, *(job.project or DEFAULT for job in trace), *(s.project for s in setup.studies)])
    for name in setup.rules.queues:
        owners.setdefault(name, DEFAULT)
    events = [Event(ProjectSet(name), now) for name in projects]
    events += [Event(QueueSet(name, owner), now) for name, owner in owners.items()]
    for pool in setup.cluster.pools:
        made = PoolSet(pool.name, ENGINE, accelerator=_kind(pool), spot=pool.spot)
        events.append(Event(made, now))
    events.append(Event(RulesSet(setup.rules), now))
    if setup.prices is not None:
        events.append(Event(PricesSet(setup.prices), now))
    events += [Event(budget, now) for budget in setup.budgets]
    return events


class Specs:
    """Makes the specs of trace jobs. Most differ only in the declared run time, so the rest is validated once."""

    def __init__(self, setup: Setup) -> None:
        self._setup = setup
        self._spot = frozenset(pool.name for pool in setup.cluster.pools if pool.spot)
        self._known: dict[tuple[Any, ...], JobSpec] = {}

    def of(self, job: TraceJob) -> tuple[JobSpec, JobSpec]:
        """The job's spec, and the spec shared by all jobs that differ only in their declared run time.

        Raises pydantic's ValidationError for a job that no job file could describe.
        """
        key = (
            job.name, job.kind, job.project, job.queue, job.priority, job.nodes, job.accelerators, job.accelerator,
            job.cpus, job.memory, job.share,
        )  # fmt: skip
        spec = self._known.get(key)
        if spec is None:
            spec = self._known[key] = self._new(job)
        declared = job.duration if self._setup.exact else job.declared
        if declared is None:
            return spec, spec
        return spec.model_copy(update={"max_duration": max(float(declared), _SHORTEST)}), spec

    def _new(self, job: TraceJob) -> JobSpec:
        pool = self._setup.cluster.bound.get(job.queue or DEFAULT)
        return JobSpec(
            name=mended_name(job.name) if job.name else "job",
            kind=job.kind,
            project=job.project or DEFAULT,
            queue=job.queue or DEFAULT,
            pool=pool,
            run="true",
            num_nodes=job.nodes,
            resources=WorkerResources(
                accelerator=job.accelerator if job.accelerators else "",
                accelerators=job.accelerators,
                cpus=job.cpus or None,
                memory=job.memory or None,
                share=job.share,
            ),
            priority=job.priority,
            use_spot=bool(self._spot) if pool is None else pool in self._spot,
            checkpoint=Checkpoint(every=self._setup.costs.checkpoint_every),
        )


def accelerators(nodes: Sequence[NodeInfo]) -> int:
    return sum(node.resources.accelerators for node in nodes)


def _nodes(pool: PoolShape) -> Iterator[NodeInfo]:
    resources = Resources(round(pool.cpus * 1000), pool.memory, pool.accelerators, _kind(pool))  # one object for all
    for index in range(pool.nodes):
        labels = {"rack": f"{pool.name}-{index // pool.rack}"} if pool.rack else {}
        yield NodeInfo(f"{pool.name}-{index}", pool.name, resources, labels)


def _kind(pool: PoolShape) -> str:
    return pool.accelerator if pool.accelerators else ""
