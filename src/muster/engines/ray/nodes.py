"""Ray's nodes as Muster's nodes: their resources, their pools, and a worker's request as a Ray bundle."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from muster.core.resources import WHOLE, Resources
from muster.core.units import ANY_ACCELERATOR
from muster.engines.base import NodeInfo

ACCELERATOR: Final = "accelerator"  # in a selector: the kind of accelerator, in addition to the node's labels
TYPE: Final = "accelerator_type:"  # prefix of the resource by which Ray names a node's accelerator type
SLIVER: Final = 0.001  # amount of a node's own resource, for a worker that asks for nothing
RESOLUTION: Final = 10_000  # Ray counts in ten-thousandths


@dataclass(frozen=True, slots=True)
class Pool:
    name: str
    selector: Mapping[str, str] = field(default_factory=dict)
    node: Resources | None = None  # the resources of a node that the pool could add
    max_nodes: int = 0


def name_nodes(nodes: Mapping[str, Mapping[str, Any]], before: Mapping[str, str]) -> dict[str, str]:
    """Node id → name: from a label, or else the node's address; with a part of the id where two are equal.
    A node keeps its name, because work is recorded under it."""
    names = {node_id: before[node_id] for node_id in nodes if node_id in before}
    wanted = {}
    for node_id in sorted(nodes.keys() - names.keys()):
        labels = nodes[node_id]["labels"]
        wanted[node_id] = str(labels.get("muster-node") or labels.get("ray.io/node-name") or nodes[node_id]["ip"])
    count = Counter([*wanted.values(), *names.values()])
    return names | {node_id: name if count[name] == 1 else f"{name}-{node_id[-6:]}" for node_id, name in wanted.items()}


def node_infos(raw: Iterable[Mapping[str, Any]], pools: Sequence[Pool], rest: str) -> list[NodeInfo]:
    """Nodes with resources to use; `rest` is the pool of nodes that no selector matches."""
    found = []
    for node in raw:
        if not has_resources(node["resources"]):
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


def has_resources(amounts: Mapping[str, float]) -> bool:
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
    """The resources of one worker. `address`:
    of its node, for a worker that asks for nothing, as Ray refuses empty bundles."""
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
    """Waiting workers as bundles for the autoscaler, with the labels of their pool."""
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
