"""A sample of a pool at one point in time: how much is in use, what is queued, and how much of the rest is usable.

A queued job that names no pool counts in every pool that could run it, because it would need that pool if the others
did not exist. In the sample of all pools it counts once, and so does a job that fits nowhere.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from muster.core.entities import Node
from muster.core.job import Job
from muster.core.journal import Journal
from muster.core.resources import WHOLE, Resources
from muster.core.state import State
from muster.monitor import rollup

Shape = tuple[Resources, int]  # of a gang: the request of each worker, and the number of workers
_SHAPES: Final = 8  # only the most common gangs are used
_PARTS: Final = 100


def sample(state: State) -> dict[str, dict[str, int]]:
    """Samples by pool, and of all pools under `rollup.ALL`."""
    return Sampler().sample(state)


def idle_nodes(state: State) -> list[Node]:
    """Copies of the nodes with a free accelerator, for use while the state changes."""
    healthy = (node for node in state.nodes.values() if node.health == "healthy" and node.role != "slot")
    free = (node for node in healthy if node.free_devices or node.parts)
    return [replace(node, parts=dict(node.parts), jobs=set()) for node in free]


def add_usable(samples: Mapping[str, dict[str, int]], shares: Mapping[str, float]) -> None:
    """`shares`: the part of each pool's free accelerators that typical gangs could use; a pool without one: all."""
    pools = [pool for pool in samples if pool != rollup.ALL]
    for pool in pools:
        samples[pool][rollup.USABLE] = round(samples[pool][rollup.FREE] * shares.get(pool, 1.0))
    samples[rollup.ALL][rollup.USABLE] = sum(samples[pool][rollup.USABLE] for pool in pools)


def add_stranded(samples: Mapping[str, dict[str, int]], stranded: Mapping[str, tuple[int, int, int]]) -> None:
    """`stranded`: of each pool, in thousandths of accelerators, those without CPUs, without memory, and without the
    rest of an accelerator."""
    names = (rollup.NO_CPUS, rollup.NO_MEMORY, rollup.NO_REST)
    pools = [pool for pool in samples if pool != rollup.ALL]
    for pool in pools:
        samples[pool].update(zip(names, stranded.get(pool, (0, 0, 0)), strict=True))
    for name in names:
        samples[rollup.ALL][name] = sum(samples[pool][name] for pool in pools)


@dataclass(frozen=True, slots=True)
class _Want:
    """What queued jobs that fit the same pools have in common."""

    pool: str | None
    queue: str
    spot: bool
    nodes: int
    ask: Resources

    @property
    def accelerators(self) -> int:
        """Thousandths."""
        return self.ask.accelerators * self.ask.share * self.nodes


class Sampler:
    """Keeps counts between samples, so that the cost of a sample depends on what changed and not on what exists."""

    def __init__(self) -> None:
        self._journal: Journal | None = None
        self._cursor = 0
        self._wants: dict[str, _Want] = {}  # of queued jobs
        self._queued: Counter[_Want] = Counter()
        self._shapes: dict[str, Shape] = {}  # of unfinished jobs that request accelerators
        self._common: Counter[Shape] = Counter()
        self._nodes: dict[str, tuple[str, rollup.Sample]] = {}
        self._pools: dict[str, Counter[str]] = {}
        self._members: dict[str, int] = {}  # nodes of each pool

    def sample(self, state: State) -> dict[str, dict[str, int]]:
        """Reads the live state, so it must be called between two commits."""
        self._catch_up(state)
        found = {pool: dict(_ZERO, **counts) for pool, counts in self._pools.items()}
        _add_machines(found, state)
        whole = {name: sum(values[name] for values in found.values()) for name in _ZERO}
        for want, jobs in self._queued.items():
            places = [pool for pool in found if _could_take(state, pool, want)]
            for place in (*(found[pool] for pool in places), whole):
                place[rollup.JOBS] += 1000 * jobs
                place[rollup.ASKED] += want.accelerators * jobs
        return {**found, rollup.ALL: whole}

    def typical(self) -> list[Shape]:
        """The most common gangs of the last sample that request accelerators, each repeated by its share."""
        common = self._common.most_common(_SHAPES)
        total = sum(count for _, count in common)
        return [shape for shape, count in common for _ in range(-(-_PARTS * count // total))]

    def _catch_up(self, state: State) -> None:
        entries = state.journal.since(self._cursor) if state.journal is self._journal else None
        self._journal, self._cursor = state.journal, state.journal.end
        if entries is None:
            self._wants, self._queued = {}, Counter()
            self._shapes, self._common = {}, Counter()
            self._nodes, self._pools, self._members = {}, {}, {}
            entries = [*(("job", name) for name in state.jobs), *(("node", name) for name in state.nodes)]
        changed = dict.fromkeys(entries)
        for name in (name for what, name in changed if what == "node"):
            self._count_node(name, state.nodes.get(name))
        for name in (name for what, name in changed if what == "job"):
            job = state.jobs.get(name)
            queued = job if job is not None and job.phase == "queued" and not job.awaits else None
            self._count_want(name, queued)
            # By `active` and not by phase: a job ends after it has released its nodes, and that adds no journal entry.
            self._count_shape(name, job if name in state.active else queued)

    def _count_node(self, name: str, node: Node | None) -> None:
        known = self._nodes.pop(name, None)
        if known is not None:
            self._pools[known[0]].subtract(known[1])
            self._members[known[0]] -= 1
            if not self._members[known[0]]:
                del self._members[known[0]], self._pools[known[0]]
        if node is not None:
            self._nodes[name] = (node.pool, _use(node))
            self._pools.setdefault(node.pool, Counter()).update(self._nodes[name][1])
            self._members[node.pool] = self._members.get(node.pool, 0) + 1

    def _count_want(self, name: str, job: Job | None) -> None:
        known = self._wants.pop(name, None)
        if known is not None:
            self._queued[known] -= 1
            if not self._queued[known]:
                del self._queued[known]
        if job is not None:
            spec = job.spec
            want = self._wants[name] = _Want(job.pool, job.queue, spec.use_spot, spec.num_nodes, job.ask)
            self._queued[want] += 1

    def _count_shape(self, name: str, job: Job | None) -> None:
        known = self._shapes.pop(name, None)
        if known is not None:
            self._common[known] -= 1
            if not self._common[known]:
                del self._common[known]
        if job is not None and job.ask.accelerators:
            shape = self._shapes[name] = (job.ask, job.spec.num_nodes)
            self._common[shape] += 1


_ZERO: dict[str, int] = dict.fromkeys(
    (
        rollup.USED, rollup.THERE, rollup.CPUS_USED, rollup.CPUS, rollup.FREE, rollup.OUT, rollup.JOBS, rollup.ASKED,
    ),
    0,
)  # fmt: skip


def _add_machines(found: dict[str, dict[str, int]], state: State) -> None:
    """In a pool whose engine places the workers, its machines are the capacity, and slots only count use."""
    for node in state.machines.values():
        there = found.setdefault(node.pool, dict(_ZERO))
        there[rollup.THERE] += WHOLE * node.total.accelerators
        there[rollup.CPUS] += node.total.milli_cpus
        there[rollup.OUT] += WHOLE * node.total.accelerators if node.health != "healthy" else 0
    for pool in {node.pool for node in state.machines.values()}:
        there = found[pool]
        there[rollup.FREE] = max(there[rollup.THERE] - there[rollup.USED] - there[rollup.OUT], 0)


def _use(node: Node) -> dict[str, int]:
    there = WHOLE * node.total.accelerators
    # A node that came back smaller may hold jobs that are larger than it is.
    free = max(0, WHOLE * node.free.accelerators + sum(node.parts.values()))
    fit = node.health == "healthy"
    if node.role == "slot":
        used = node.total.milli_cpus - max(0, node.free.milli_cpus)
        return {**_ZERO, rollup.USED: there - free, rollup.CPUS_USED: used}
    return {
        rollup.THERE: there,
        rollup.USED: there - free,
        rollup.FREE: free if fit else 0,
        rollup.OUT: 0 if fit else free,
        rollup.CPUS: node.total.milli_cpus,
        rollup.CPUS_USED: node.total.milli_cpus - max(0, node.free.milli_cpus),
    }


def _could_take(state: State, pool: str, want: _Want) -> bool:
    """Whether the pool has nodes, free or not, that suit the job, and the rules allow the job there."""
    if want.pool is not None:
        return want.pool == pool
    allowed = state.rules.queue(want.queue).pools
    spot = state.rules.pool(pool).spot
    if spot is None:
        known = state.pools.get(pool)
        spot = known is not None and known.spot
    if (allowed and pool not in allowed) or (spot and not want.spot):
        return False
    return any(of == pool and whole.holds(want.ask) for of, whole in state.kinds)
