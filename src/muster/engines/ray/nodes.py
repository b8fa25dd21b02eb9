"""Ray's nodes as Muster's: what each has, which pool it belongs to, and what a worker takes of it in Ray's words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from muster.core.resources import WHOLE, Resources
from muster.core.units import ANY_ACCELERATOR
from muster.engines.base import NodeInfo

ACCELERATOR: Final = "accelerator"  # in a selector: the kind of accelerator, beside the node's labels
TYPE: Final = "accelerator_type:"  # resource by which Ray tells what a node's accelerators are
SLIVER: Final = 0.001  # of a node's own resource, for a worker that asks for nothing
RESOLUTION: Final = 10_000  # Ray counts in ten-thousandths


@dataclass(frozen=True, slots=True)
class Pool:
    name: str
    selector: Mapping[str, str] = field(default_factory=dict)
    node: Resources | None = None  # what a node of it is like that does not exist yet
    max_nodes: int = 0


def name_nodes(nodes: Mapping[str, Mapping[str, Any]], before: Mapping[str, str]) -> dict[str, str]:
    """Id → what people call it: a label that says so, else its address; with a piece of the id where two are alike.
    Whoever has a name keeps it: work is known by it."""
    names = {node_id: before[node_id] for node_id in nodes if node_id in before}
    wanted = {}
    for node_id in sorted(nodes.keys() - names.keys()):
        labels = nodes[node_id]["labels"]
        wanted[node_id] = str(labels.get("muster-node") or labels.get("ray.io/node-name") or nodes[node_id]["ip"])
    count = Counter([*wanted.values(), *names.values()])
    return names | {node_id: name if count[name] == 1 else f"{name}-{node_id[-6:]}" for node_id, name in wanted.items()}


def node_infos(raw: Iterable[Mapping[str, Any]], pools: Sequence[Pool], rest: str) -> list[NodeInfo]:
    """Nodes that have something to give; `rest` is the pool of those that no selector fits."""
    found = []
    for node in raw:
        if not gives(node["resources"]):
            continue
        resources = node_resources(node["resources"])
        labels = {name: value for name, value in node["labels"].items() if name != "ray.io/node-id"}
        pool = next((pool.name for pool in pools if fits(pool, labels, resources)), rest)
        trouble = node.get("trouble", "")
        found.append(
            NodeInfo(
                node["name"],
                pool,
                resources,
                {**labels, "host": node["host"]},
                health="suspect" if trouble else "healthy",
                why=trouble,
            )
        )
    return sorted(found, key=lambda node: node.name)


def gives(amounts: Mapping[str, float]) -> bool:
    """Whether work can be placed there at all: not on a head that is no worker."""
    return bool(amounts.get("CPU") or amounts.get("GPU"))


def node_resources(amounts: Mapping[str, float]) -> Resources:
    gpus = int(amounts.get("GPU", 0))
    kind = next((name.removeprefix(TYPE) for name in sorted(amounts) if name.startswith(TYPE)), ANY_ACCELERATOR)
    return Resources(int(1000 * amounts.get("CPU", 0)), int(amounts.get("memory", 0)), gpus, kind if gpus else "")


def fits(pool: Pool, labels: Mapping[str, str], resources: Resources) -> bool:
    told = {**labels, ACCELERATOR: resources.accelerator}
    return all(told.get(name) == value for name, value in pool.selector.items())


def bundle_of(ask: Resources, address: str = "") -> dict[str, float]:
    """What one worker takes. `address`: of its node, for one that asks for nothing: Ray refuses an empty bundle."""
    bundle: dict[str, float] = {}
    if ask.milli_cpus:
        bundle["CPU"] = ask.milli_cpus / 1000
    if ask.memory:
        bundle["memory"] = float(ask.memory)
    if ask.accelerators:
        count = ask.accelerators * ask.share / WHOLE
        bundle["GPU"] = round(count * RESOLUTION) / RESOLUTION
    if not bundle and address:
        bundle[f"node:{address}"] = SLIVER
    return bundle


def requests_of(
    waiting: Iterable[tuple[str, Resources, int]], pools: Sequence[Pool]
) -> list[tuple[dict[str, float], dict[str, str]]]:
    """Who waits, as bundles for the autoscaler, with the labels of the pool that they wait for."""
    known = {pool.name: pool for pool in pools}
    found = []
    for name, ask, workers in waiting:
        bundle = bundle_of(ask) or {"CPU": SLIVER}
        if ask.accelerators and ask.accelerator not in ("", ANY_ACCELERATOR):
            bundle[f"{TYPE}{ask.accelerator}"] = SLIVER
        selector = known[name].selector if name in known else {}
        labels = {key: value for key, value in selector.items() if key != ACCELERATOR}
        found.extend([(bundle, labels)] * workers)
    return found
