"""The cluster's nodes as Muster's nodes: machines with their health and use, and slots in each pool's queue."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal, InvalidOperation
from typing import Any, Final

from muster.core.resources import Resources
from muster.engines.base import Health, NodeInfo
from muster.engines.kubernetes.settings import GPU, PoolSettings
from muster.engines.local_nodes import gpu_kind

DRAINED: Final = "muster.dev/drained"  # annotation: why Muster has cordoned a node
CPU_POOL: Final = "cpu"
SPARE: Final = 8  # minimum number of slots beyond a pool's machines
# Labels that name an accelerator's product: from the vendors' feature discovery and from the clouds.
PRODUCTS: Final = ("nvidia.com/gpu.product", "cloud.google.com/gke-accelerator", "k8s.amazonaws.com/accelerator",
                   "amd.com/gpu.product-name")  # fmt: skip
ACCELERATORS: Final = (GPU, "amd.com/gpu", "gpu.intel.com/i915", "habana.ai/gaudi", "google.com/tpu")
GPU_MEMORY: Final = "nvidia.com/gpu.memory"  # MiB per GPU
# Conditions that report a problem when they are true; the last four are the node problem detector's.
TROUBLES: Final = (
    "MemoryPressure", "DiskPressure", "PIDPressure", "NetworkUnavailable",
    "KernelDeadlock", "ReadonlyFilesystem", "FrequentKubeletRestart", "CorruptDockerOverlay2",
)  # fmt: skip
_NOISE: Final = ("feature.node.kubernetes.io/", "beta.kubernetes.io/", "nvidia.com/", "node.kubernetes.io/exclude")
_UNITS: Final = {
    **{unit: Decimal(10) ** power for unit, power in zip(("n", "u", "m", ""), (-9, -6, -3, 0), strict=True)},
    **{unit: Decimal(10) ** (3 * power) for power, unit in enumerate(("k", "M", "G", "T", "P", "E"), 1)},
    **{unit: Decimal(2) ** (10 * power) for power, unit in enumerate(("Ki", "Mi", "Gi", "Ti", "Pi", "Ei"), 1)},
}
_QUANTITY: Final = re.compile(r"([+-]?[0-9.]+(?:[eE][+-]?[0-9]+)?)([numkMGTPE]?|[KMGTPE]i)\Z")
Object = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Growth:
    """A node that the cluster may still add to a pool, and the maximum number of nodes."""

    node: Resources
    max_nodes: int


@dataclass(slots=True)
class Load:
    """What pods hold on one node: all pods, and the DaemonSets' pods."""

    all: dict[str, Decimal] = field(default_factory=lambda: defaultdict(Decimal))
    daemons: dict[str, Decimal] = field(default_factory=lambda: defaultdict(Decimal))


def quantity(text: object) -> Decimal:
    """Parses a Kubernetes quantity: `250m`, `1.5`, `64Gi`, `1e3`. An invalid one counts as 0."""
    match = _QUANTITY.match(str(text))
    try:
        return Decimal(match[1]) * _UNITS[match[2]] if match else Decimal(0)
    except InvalidOperation:
        return Decimal(0)


def slim_pod(pod: Object) -> Object | None:
    """The part of a pod that matters for its node: where it is, and what it holds."""
    if not pod["spec"].get("nodeName") or pod.get("status", {}).get("phase") in ("Succeeded", "Failed"):
        return None
    owners = pod["metadata"].get("ownerReferences") or []
    return {
        "metadata": {"namespace": pod["metadata"]["namespace"], "name": pod["metadata"]["name"]},
        "node": pod["spec"]["nodeName"],
        "daemon": any(owner["kind"] == "DaemonSet" for owner in owners),
        "requests": pod_requests(pod["spec"]),
    }


def pod_requests(spec: Mapping[str, Any]) -> dict[str, str]:
    """A pod's requests as the scheduler counts them:
    containers plus sidecars, or the largest plain init container if more."""
    running: dict[str, Decimal] = defaultdict(Decimal)
    first: dict[str, Decimal] = defaultdict(Decimal)
    for container in spec.get("containers") or []:
        _add(running, _requests(container))
    for container in spec.get("initContainers") or []:
        if container.get("restartPolicy") == "Always":
            _add(running, _requests(container))
        else:
            for name, amount in _requests(container).items():
                first[name] = max(first[name], amount)
    found = {name: max(running[name], first[name]) for name in {**running, **first}}
    _add(found, {name: quantity(amount) for name, amount in (spec.get("overhead") or {}).items()})
    return {name: str(amount) for name, amount in found.items()}


def loads(pods: Iterable[Object]) -> dict[str, Load]:
    """The load by node, from pods reduced by `slim_pod`."""
    found: dict[str, Load] = defaultdict(Load)
    for pod in pods:
        amounts = {name: Decimal(amount) for name, amount in pod["requests"].items()}
        _add(found[pod["node"]].all, amounts)
        if pod["daemon"]:
            _add(found[pod["node"]].daemons, amounts)
    return found


def discover(nodes: Iterable[Object]) -> dict[str, PoolSettings]:
    """One pool for every accelerator product, and one for the nodes without accelerators."""
    products: dict[tuple[str, str], set[str]] = defaultdict(set)  # label, product → resources
    taints: dict[tuple[str, str], list[set[str]]] = defaultdict(list)
    found: dict[str, PoolSettings] = {}
    for node in nodes:
        resource, label, product = _accelerator(node)
        if not resource:
            if not _repelled(node, ()):
                found[CPU_POOL] = PoolSettings()
            continue
        products[label, product].add(resource)
        taints[label, product].append({_toleration(t) for t in _taints(node) if t.get("key") in (resource, GPU)})
    kinds = defaultdict(list)
    for label, product in sorted(products):
        kinds[gpu_kind(product) if product else "GPU"].append((label, product))
    for kind, alike in kinds.items():
        for label, product in alike:
            name = _slug(kind if len(alike) == 1 else product) or "gpu"
            wanted = tuple(sorted(set.union(*taints[label, product])))
            selector = {label: product} if label else {}
            found[name] = PoolSettings(selector, "", kind, min(products[label, product]), wanted)
    return found


def describe(
    nodes: Sequence[Object],
    pools: Mapping[str, PoolSettings],
    use: Mapping[str, Load] | None,
    depth: float,
    growth: Mapping[str, Growth],
    levels: Iterable[str] = (),
) -> list[NodeInfo]:
    """Machines first, each in the first pool that it suits, then the slots. `use` is None if it is not known.

    `levels` are the topology levels that the cluster itself takes care of: all slots of a pool share them.
    """
    machines: dict[str, list[tuple[NodeInfo, Resources]]] = {pool: [] for pool in [*pools, *growth]}
    for node in sorted(nodes, key=lambda item: str(item["metadata"]["name"])):
        pool = next((name for name, wanted in pools.items() if suits(node, wanted)), None)
        if pool is not None:
            load = use.get(node["metadata"]["name"], Load()) if use is not None else None
            machines[pool].append(_machine(node, pool, pools[pool], load))
    found = [machine for members in machines.values() for machine, _ in members]
    for pool, members in machines.items():
        found.extend(_slots(pool, members, pools.get(pool, PoolSettings()), depth, growth.get(pool), levels))
    return found


def suits(node: Object, pool: PoolSettings) -> bool:
    labels = node["metadata"].get("labels") or {}
    if any(labels.get(name) != value for name, value in pool.selector.items()) or _repelled(node, pool.tolerations):
        return False
    has = quantity((node.get("status", {}).get("allocatable") or {}).get(pool.resource, 0)) > 0
    # A pool without any criteria holds the nodes without accelerators.
    return has if pool.accelerator else bool(pool.selector) or not _accelerator(node)[0]


def is_lost(node: Object | None) -> str:
    """Why nothing on the node can be alive or be reached; "" for a node that answers."""
    if node is None:
        return "the node is no longer in the cluster"
    ready = _condition(node, "Ready")
    if ready is not None and ready.get("status") == "True":
        return ""
    return f"the node is not ready: {(ready or {}).get('message') or 'its kubelet says nothing'}"


def _machine(node: Object, pool: str, wanted: PoolSettings, load: Load | None) -> tuple[NodeInfo, Resources]:
    """The machine, and the most that a job can have of it."""
    amounts = {name: quantity(text) for name, text in (node.get("status", {}).get("allocatable") or {}).items()}
    labels = node["metadata"].get("labels") or {}
    memory = int(labels[GPU_MEMORY]) << 20 if str(labels.get(GPU_MEMORY, "")).isdigit() else 0
    health, why = _health(node)
    whole = _resources(amounts, wanted, memory)
    left = {name: amount - (load.daemons.get(name, Decimal(0)) if load else 0) for name, amount in amounts.items()}
    shown = {name: value for name, value in labels.items() if not name.startswith(_NOISE)}
    used = _resources(load.all, wanted, memory) if load is not None else None
    info = NodeInfo(node["metadata"]["name"], pool, whole, shown, "machine", health, why, used)
    return info, _resources(left, wanted, memory)


def _resources(amounts: Mapping[str, Decimal], pool: PoolSettings, memory: int) -> Resources:
    count = int(amounts.get(pool.resource, 0)) if pool.accelerator else 0
    return Resources(
        milli_cpus=max(0, int(amounts.get("cpu", Decimal(0)) * 1000)),
        memory=max(0, int(amounts.get("memory", Decimal(0)))),
        accelerators=count,
        accelerator=pool.accelerator if count else "",
        accelerator_memory=memory if count else 0,
    )


def _slots(
    pool: str,
    members: Sequence[tuple[NodeInfo, Resources]],
    wanted: PoolSettings,
    depth: float,
    growth: Growth | None,
    levels: Iterable[str],
) -> list[NodeInfo]:
    """Each slot is as large as the largest machine, so that no slot refuses a gang that fits one of the machines."""
    sizes = [room for _, room in members] + ([growth.node] if growth else [])
    count = max(len(members), growth.max_nodes if growth else 0)
    if not sizes or not count:
        return []
    largest = max(sizes, key=lambda size: (size.accelerators, size.memory, size.milli_cpus))
    size = replace(
        largest, milli_cpus=max(s.milli_cpus for s in sizes), memory=max(s.memory for s in sizes)
    )  # fmt: skip
    number = max(math.ceil(depth * count), count + SPARE)
    labels = {**wanted.selector, **dict.fromkeys(levels, pool)}
    names = (f"{pool}/{index}" for index in range(1, number + 1))
    return [NodeInfo(name, pool, size, labels, "slot", machines=count) for name in names]


def _health(node: Object) -> tuple[Health, str]:
    if lost := is_lost(node):
        return "suspect", lost.replace("the node is ", "")
    for kind in TROUBLES:
        condition = _condition(node, kind)
        if condition is not None and condition.get("status") == "True":
            return "suspect", f"{kind}: {condition.get('message') or condition.get('reason') or 'true'}"
    if node["spec"].get("unschedulable"):
        note = (node["metadata"].get("annotations") or {}).get(DRAINED)
        return "draining", note or "cordoned in Kubernetes"
    leaving = [t for t in _taints(node) if t.get("effect") == "NoExecute" or _is_lifecycle(t)]
    if leaving:
        return "draining", f"taint {leaving[0]['key']}"
    return "healthy", ""


def _accelerator(node: Object) -> tuple[str, str, str]:
    """The resource that counts the node's accelerators, the label that names their product, and the product;
    "" for none."""
    amounts, labels = node.get("status", {}).get("allocatable") or {}, node["metadata"].get("labels") or {}
    resource = next((name for name in ACCELERATORS if quantity(amounts.get(name, 0)) > 0), "")
    label = next((name for name in PRODUCTS if labels.get(name)), "") if resource else ""
    return resource, label, labels.get(label, "")


def _repelled(node: Object, tolerations: Sequence[str]) -> bool:
    """Whether the node has a taint, not set by Kubernetes itself, that the pool's pods don't tolerate."""
    own = [t for t in _taints(node) if t.get("effect") != "PreferNoSchedule" and not _is_lifecycle(t)]
    bare = {text.replace("=", ":", 1).split(":")[0] for text in tolerations if "=" not in text}
    return any(_toleration(t) not in tolerations and t["key"] not in bare for t in own)


def _is_lifecycle(taint: Mapping[str, Any]) -> bool:
    """Whether Kubernetes itself set the taint for a condition; it goes with the condition."""
    return str(taint.get("key", "")).startswith("node.kubernetes.io/") or taint.get("key") == (
        "node.cloudprovider.kubernetes.io/uninitialized"
    )


def _toleration(taint: Mapping[str, Any]) -> str:
    value = f"={taint['value']}" if taint.get("value") else ""
    return f"{taint['key']}{value}:{taint['effect']}"


def _taints(node: Object) -> list[dict[str, Any]]:
    return list(node["spec"].get("taints") or [])


def _condition(node: Object, kind: str) -> dict[str, Any] | None:
    found = node.get("status", {}).get("conditions") or []
    return next((item for item in found if item["type"] == kind), None)


def _requests(container: Mapping[str, Any]) -> dict[str, Decimal]:
    resources = container.get("resources") or {}
    return {
        name: quantity(v)
        for name, v in {**(resources.get("limits") or {}), **(resources.get("requests") or {})}.items()
    }


def _add(total: dict[str, Decimal], amounts: Mapping[str, Decimal]) -> None:
    for name, amount in amounts.items():
        total[name] = total.get(name, Decimal(0)) + amount


def _slug(text: str) -> str:
    words = re.sub(r"[^a-z0-9]+", "-", text.lower().removeprefix("nvidia")).strip("-")
    return words[:40].rstrip("-")
