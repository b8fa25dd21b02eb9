"""A description of the simulation in words: the trace, the cluster, the policies and the changes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from muster.core.money import format_amount
from muster.core.units import format_duration
from muster.sim.model import Cluster, Costs, Setup, TraceJob
from muster.sim.presets import Preset
from muster.sim.summary import window
from muster.sim.table import span
from muster.sim.traces import Trace


def describe(
    trace: Trace, jobs: Sequence[TraceJob], setups: Sequence[Setup], policies: Mapping[str, Preset], load: float
) -> list[tuple[str, str]]:
    """Name and value of each setting."""
    start, end = window(jobs)
    facts = [
        ("trace", f"{trace.ledger.source} ({trace.format})"),
        ("jobs", f"{len(jobs):,} of {trace.ledger.rows:,} rows, submitted within {span(end - start)}"),
    ]
    if load != 1:
        facts.append(("load", f"jobs come {load:g} times as fast as in the trace"))
    clusters = {cluster_words(setup.cluster): None for setup in setups}
    facts += [("cluster", words) for words in clusters]
    facts += [(f"policy {name}", preset.about) for name, preset in policies.items()]
    if (prices := setups[0].prices) is not None:
        facts.append(("prices", f"in {prices.currency}, of {', '.join(prices.pools) or 'no pool'}, as they are today"))
    if budgets := setups[0].budgets:
        told = ", ".join(f"{one.name} ({format_amount(one.amount, one.currency)}, {one.mode})" for one in budgets)
        facts.append(("budgets", told))
    return [*facts, *_costs(setups[0].costs)]


def cluster_words(cluster: Cluster) -> str:
    pools = [
        f"{pool.name}: {pool.nodes} node{'' if pool.nodes == 1 else 's'} of {pool.accelerators} {pool.accelerator}"
        + (" (spot)" if pool.spot else "")
        for pool in cluster.pools
    ]
    confined = "each for its own queue alone" if cluster.bound else ""
    return "; ".join(filter(None, [*pools, confined]))


def _costs(costs: Costs) -> Iterator[tuple[str, str]]:
    wide = f", {format_duration(costs.restart_wide)} above {costs.wide} accelerators"
    yield "restart", format_duration(costs.restart) + (wide if costs.restart_wide != costs.restart else "")
    saves = "whenever a job is asked to stop"
    if costs.checkpoint_every is not None:
        saves = f"every {format_duration(costs.checkpoint_every)}, {format_duration(costs.checkpoint_cost)} each"
    yield "saves", saves
    if costs.node_failures:
        yield "node failures", f"{costs.node_failures:g} a node and day, {format_duration(costs.repair)} away"
    if costs.spot_interruptions:
        yield "spot interruptions", f"{costs.spot_interruptions:g} a node and day"
    if costs.node_failures or costs.spot_interruptions:
        yield "seed", str(costs.seed)
