"""What can be searched for: the nodes of a pool, or the quota of a queue; and the words in which it is asked."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from muster.core.errors import Problem, SpecError
from muster.core.suggest import did_you_mean
from muster.sim.model import DEFAULT, Cluster, PoolShape, Setup, TraceJob
from muster.sim.targets import Target
from muster.sim.whatif import changed_rules

MOST: Final = 64  # times the nodes of now: no search goes beyond
WORDS: Final = "nodes, nodes:POOL, quota:QUEUE, quota:QUEUE:POOL or policy"


@dataclass(frozen=True, slots=True)
class Space:
    """Sizes from `low` to `high`; `start` is what the setup has now."""

    unit: str  # "nodes of h100", for example
    start: int
    low: int
    high: int
    change: Callable[[Setup, int], Setup]
    ordered: bool  # more is better as a rule, so that sizes can be bisected


def space_of(word: str, setups: Sequence[Setup], jobs: Sequence[TraceJob], targets: Sequence[Target]) -> Space | None:
    """None for a search over policies alone. SpecError where the word does not fit the cluster or the trace."""
    kind, _, rest = word.partition(":")
    cluster = setups[0].cluster
    if kind == "policy" and not rest:
        return None
    if kind == "nodes":
        return _nodes(_pool(cluster, rest, word))
    if kind == "quota" and rest:
        queue, _, pool = rest.partition(":")
        queues = {job.queue or DEFAULT for job in jobs} | {name for one in setups for name in one.rules.queues}
        if queue not in queues:
            raise _unfit(word, "a queue of the trace", did_you_mean(queue, sorted(queues), quote="'"))
        return _quota(queue, _pool(cluster, pool, word), setups[0], all(one.queue == queue for one in targets))
    raise _unfit(word, WORDS, "Write, for example, --find nodes.")


def _nodes(pool: PoolShape) -> Space:
    def change(setup: Setup, size: int) -> Setup:
        pools = tuple(replace(one, nodes=size) if one.name == pool.name else one for one in setup.cluster.pools)
        return replace(setup, cluster=replace(setup.cluster, pools=pools))

    return Space(f"nodes of {pool.name}", pool.nodes, 1, MOST * pool.nodes, change, ordered=True)


def _quota(queue: str, pool: PoolShape, setup: Setup, ordered: bool) -> Space:
    def change(setup: Setup, size: int) -> Setup:
        return replace(setup, rules=changed_rules(setup.rules, [(("queues", queue, "quota", pool.name), str(size))]))

    total = pool.nodes * pool.accelerators
    now = round(setup.rules.queue(queue).quota.get(pool.name, 0))
    return Space(f"accelerators of {pool.name} as quota of {queue}", min(now, total), 0, total, change, ordered)


def _pool(cluster: Cluster, name: str, word: str) -> PoolShape:
    there = {pool.name: pool for pool in cluster.pools}
    if not name and len(there) == 1:
        return cluster.pools[0]
    if name not in there:
        hint = did_you_mean(name, there, quote="'") if name else f"There are: {', '.join(there)}."
        raise _unfit(word, "a pool of the cluster", hint)
    return there[name]


def _unfit(word: str, expected: str, hint: str) -> SpecError:
    return SpecError([Problem(f"--find {word}", "something else", expected, hint)], "--find")
