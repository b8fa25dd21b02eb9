"""Refuses a job that no set of nodes could ever hold, and names the nearest shape that would fit."""

from __future__ import annotations

from collections import Counter
from math import ceil
from typing import Any, Final

from muster.control.admission.base import Context
from muster.control.admission.pools import open_pools
from muster.core.reasons import Reason, reason
from muster.core.resources import Resources
from muster.core.spec import JobSpec, ask, fewest_nodes, ranks_per_node
from muster.sched.spares import without_spares

_NO_NODES: Final = "Add nodes; see `muster nodes`, and `muster engines` for one that has not answered yet."


def check(spec: JobSpec, context: Context) -> Reason | None:
    state, wanted, fewest = context.state, ask(spec), fewest_nodes(spec)
    pools = open_pools(context, spec)
    if (state.kinds or context.growth) and not pools:
        return None  # another check refuses it
    fits = fitting(context, pools, wanted)
    # A gang never spans pools, so the pool with the most nodes that could hold a worker decides.
    most = max(fits.values(), default=0)
    if most >= fewest:
        return None
    there = {total for pool, total in kinds(context) if pool in pools}
    if not there:
        return reason("never_fits", "there are no nodes", _NO_NODES, wanted=fewest, fitting=0)
    every = fitting(context, pools, wanted, spares=True)
    if enough := [pool for pool, count in every.items() if count >= fewest]:
        pool = max(enough, key=lambda name: fits[name])
        return _only_spares(pool, state.rules.pool(pool).spares, fewest, fits[pool], wanted)
    if most:
        message = f"{fewest} nodes with {wanted} each are asked for, and only {most} such exist"
        hint, nearest = f"Ask for `num_nodes: {most}` or fewer, or add nodes.", {"num_nodes": most}
    else:
        message, hint, nearest = _too_large(there, wanted, spec)
    return reason("never_fits", message, hint, wanted=fewest, fitting=most, nearest=nearest)


def kinds(context: Context) -> dict[tuple[str, Resources], int]:
    """Pool and resources of a node → number of such nodes that exist or, where a pool grows, may exist."""
    found = dict(context.state.kinds)
    for pool, (total, most) in context.growth.items():
        there = sum(count for (name, _), count in context.state.kinds.items() if name == pool)
        found[pool, total] = found.get((pool, total), 0) + max(most - there, 0)
    return {kind: count for kind, count in found.items() if count}


def fitting(context: Context, pools: set[str], wanted: Resources, spares: bool = False) -> Counter[str]:
    """Number of nodes of each pool that would hold a worker if they were empty; with `spares` these too."""
    found: Counter[str] = Counter()
    by_pool: dict[str, dict[Resources, int]] = {}
    for (pool, total), count in kinds(context).items():
        if pool in pools:
            by_pool.setdefault(pool, {})[total] = count
    for pool, there in by_pool.items():
        kept = 0 if spares else context.state.rules.pool(pool).spares
        fits = [count for total, count in without_spares(there, kept).items() if total.holds(wanted)]
        if fits:
            found[pool] = sum(fits)
    for pool, slots in found.items():
        known = context.state.pools.get(pool)
        if known is not None and known.machines:
            # A cluster with its own queue has more slots than machines, by the same factor for each kind of machine.
            all_slots = sum(count for (name, _), count in context.state.kinds.items() if name == pool)
            found[pool] = min(slots, ceil(slots * known.machines / max(all_slots, 1)))
    return found


def _only_spares(pool: str, spares: int, wanted: int, left: int, ask: Resources) -> Reason:
    """For a gang that would fit if the pool kept no spares."""
    message = (
        f"{wanted} nodes with {ask} each are asked for, and pool {pool!r} has {left} such beside the {spares} that it "
        "keeps free for jobs that lose a node"
    )
    fewer = f"Ask for `num_nodes: {left}` or fewer, or have" if left else "Have"
    hint = f"{fewer} `spares` of the pool lowered in the policy (`muster queue rules`)."
    nearest = {"num_nodes": left} if left else {}
    return reason("never_fits", message, hint, wanted=wanted, fitting=left, nearest=nearest)


def _too_large(kinds: set[Resources], wanted: Resources, spec: JobSpec) -> tuple[str, str, dict[str, Any]]:
    """For a worker that no node holds: what the nearest node lacks, and a shape that it would hold."""
    nearest = min(kinds, key=lambda total: (len(total.lacks(wanted)), -total.accelerators, -total.milli_cpus))
    shape: dict[str, Any] = {}
    if wanted.accelerators and nearest.accelerators:
        count = min(wanted.accelerators, nearest.accelerators)
        kind = wanted.accelerator if nearest.suits(wanted) else nearest.accelerator
        shape["accelerators"] = f"{kind}:{count * wanted.share / 1000:g}"
    if wanted.accelerators and not nearest.accelerators:
        shape["accelerators"] = 0
    if nearest.milli_cpus < wanted.milli_cpus:
        shape["cpus"] = nearest.milli_cpus / 1000
    if nearest.memory < wanted.memory:
        shape["memory"] = f"{nearest.memory}B"
    message = f"no node can hold a worker with {wanted}: {'; '.join(nearest.lacks(wanted))}"
    hint = f"The nearest node has {nearest}: ask for no more than that, or add nodes."
    if list(shape) == ["cpus"] and spec.resources.cpus is None:
        message, hint = _too_many_ranks(ranks_per_node(spec), nearest.milli_cpus / 1000)
    return message, hint, {"resources": shape}


def _too_many_ranks(ranks: int, cpus: float) -> tuple[str, str]:
    """For a job that lacks nothing but a CPU for each rank, which it has not asked for itself."""
    message = f"{ranks} ranks on a node want {ranks} CPUs, one for each, and the largest node has {cpus:g}"
    fewer = f"Use `--nproc {int(cpus)}`, or let" if cpus >= 1 else "Let"
    return message, f"{fewer} the ranks share the CPUs: `-o cpus={cpus:g}`, in a job file `cpus: {cpus:g}`."
