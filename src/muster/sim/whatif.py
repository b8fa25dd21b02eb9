"""What-if changes: the same trace with another cluster, load, rules or costs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import yaml

from muster.core.errors import Problem, SpecError
from muster.core.policy_check import check_rules
from muster.core.policy_dump import dump_rules
from muster.core.policy_file import parse_rules
from muster.core.policy_notes import NOTES
from muster.core.rules import Rules
from muster.core.suggest import did_you_mean
from muster.sched.policies import POLICIES
from muster.sim.cluster import ClusterFile, Layout
from muster.sim.model import Cluster, Costs, PoolShape, Setup, TraceJob
from muster.sim.presets import Preset

ONLY: Final = ""  # in place of a pool name: the only pool
Path = tuple[str, ...]  # the keys of a policy file from the top


@dataclass(frozen=True, slots=True)
class Changes:
    """Changes that apply to every setup."""

    nodes: tuple[tuple[str, int], ...] = ()  # pool, nodes to add or (negative) to remove
    quotas: tuple[tuple[str, str, str], ...] = ()  # queue, pool, accelerators
    settings: tuple[tuple[Path, Any], ...] = ()  # path in a policy file, value
    costs: Costs = field(default_factory=Costs)


def with_load(jobs: Sequence[TraceJob], load: float, first: int | None) -> list[TraceJob]:
    """The first `first` jobs, submitted `load` times as fast."""
    kept = list(jobs[:first])
    if load == 1 or not kept:
        return kept
    start = kept[0].submit
    return [replace(job, submit=start + (job.submit - start) / load) for job in kept]


def fitted(jobs: Sequence[TraceJob], cluster: Cluster) -> tuple[list[TraceJob], list[str]]:
    """The jobs, with kinds of accelerator that the cluster lacks replaced by any kind; and notes on these changes."""
    kinds = {pool.accelerator for pool in cluster.pools}
    strange = sorted({job.accelerator for job in jobs} - kinds - {""})
    if not strange:
        return list(jobs), []
    note = f"{', '.join(strange)} is no kind of accelerator that the cluster has; jobs that asked for it take any kind."
    return [replace(job, accelerator="") if job.accelerator in strange else job for job in jobs], [note]


def make_setup(name: str, preset: Preset, file: ClusterFile, layout: Layout, changes: Changes) -> Setup:
    """The setup for one policy on one layout of the cluster. SpecError where a change does not fit."""
    cluster = changed_cluster(file.lay_out(layout), changes.nodes)
    quotas = [
        (("queues", queue, "quota", _pool(cluster, pool, f"--quota {queue}={amount}").name), amount)
        for queue, pool, amount in changes.quotas
    ]
    rules = changed_rules(file.with_quotas(preset.rules, layout), [*changes.settings, *quotas])
    return Setup(name, rules, cluster, changes.costs, preset.exact)


def changed_cluster(cluster: Cluster, nodes: Iterable[tuple[str, int]]) -> Cluster:
    """The cluster with more or fewer nodes in some pools."""
    pools = {pool.name: pool for pool in cluster.pools}
    for name, more in nodes:
        option = f"{'--add-nodes' if more > 0 else '--remove-nodes'} {f'{name}=' if name else ''}{abs(more)}"
        pool = pools[_pool(cluster, name, option).name]
        if pool.nodes + more < 1:
            hint = f"Remove at most {pool.nodes - 1}."
            raise _unfit(option, f"{-more} of {pool.nodes} nodes", "at least one node that is left", hint)
        pools[pool.name] = replace(pool, nodes=pool.nodes + more)
    return replace(cluster, pools=tuple(pools.values()))


def changed_rules(rules: Rules, settings: Iterable[tuple[Path, Any]]) -> Rules:
    """The rules with other values at some paths, parsed as if they were written in the policy file."""
    settings = list(settings)
    if not settings:
        return rules
    # Scalars stay text, as in a policy file.
    written = yaml.load(dump_rules(rules), yaml.BaseLoader) or {}  # noqa: S506  (it makes strings, lists and mappings)
    for path, value in settings:
        _put(written, path, value)
    return parse_rules(written, source="The policy with what the command line sets", orders=list(POLICIES))


def caveats(setup: Setup, jobs: Iterable[TraceJob]) -> list[str]:
    """Warnings about rules that don't fit the cluster and so have no effect or an unexpected one."""
    pools = {pool.name: pool.nodes * pool.accelerators for pool in setup.cluster.pools}
    queues = dict.fromkeys({*setup.rules.queues, *(job.queue for job in jobs if job.queue)}, "default")
    found = check_rules(setup.rules, pools=pools, queues=queues, projects=setup.rules.projects)
    return [f"{setup.name}: {problem}" for problem in found]


def _pool(cluster: Cluster, name: str, option: str) -> PoolShape:
    there = {pool.name: pool for pool in cluster.pools}
    if name == ONLY and len(there) == 1:
        return cluster.pools[0]
    if name in there:
        return there[name]
    hint = did_you_mean(name, there, quote="'")
    raise _unfit(option, f"the pool {name!r}" if name else "no pool", "a pool of the cluster", hint)


def _put(place: dict[str, Any], path: Path, value: Any) -> None:
    """Sets the value at the path. A section that is written as a single value is expanded to a mapping first."""
    for depth, key in enumerate(path[:-1], 1):
        below = place.get(key)
        if not isinstance(below, dict):
            short = _shorthand(path[:depth])
            below = {short: below} if short and below is not None else {}
            place[key] = below
        place = below
    place[path[-1]] = value


def _shorthand(path: Path) -> str:
    """The field that a single value stands for: `preemption: false` means `{enabled: false}`."""
    note = NOTES[Rules].get(path[0])
    return note.shorthand if note and len(path) == (2 if note.many else 1) else ""


def _unfit(where: str, given: str, expected: str, hint: str) -> SpecError:
    return SpecError([Problem(where, given, expected, hint)], "The command line")
