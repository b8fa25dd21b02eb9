"""Nodes of a cluster as machines and slots: pools, sizes, health, use."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from kube_kit import condition

from muster.core.resources import Resources
from muster.engines.base import NodeInfo
from muster.engines.kubernetes.machines import (
    DRAINED,
    SPARE,
    Growth,
    describe,
    discover,
    loads,
    pod_requests,
    quantity,
    slim_pod,
)
from muster.engines.kubernetes.settings import PoolSettings

READY = condition("Ready")


def node(
    name: str, gpus: int = 0, product: str = "", conditions: list[Any] | None = None, **spec: Any
) -> dict[str, Any]:
    labels = {"kubernetes.io/hostname": name, "zone": "z1", "feature.node.kubernetes.io/cpu": "x"}
    if product:
        labels |= {"nvidia.com/gpu.product": product, "nvidia.com/gpu.memory": "81559"}
    amounts = {"cpu": "31850m", "memory": "64Gi", **({"nvidia.com/gpu": str(gpus)} if gpus else {})}
    return {
        "metadata": {"name": name, "labels": labels, "annotations": spec.pop("annotations", {})}, "spec": spec,
        "status": {"allocatable": amounts, "conditions": [READY] if conditions is None else conditions},
    }  # fmt: skip


def by_name(found: list[NodeInfo]) -> dict[str, NodeInfo]:
    return {one.name: one for one in found}


@pytest.mark.parametrize(
    ("text", "value"),
    [("250m", "0.25"), ("1.5", "1.5"), ("64Gi", str(64 << 30)), ("1e3", "1000"), ("5k", "5000"), ("129M", "129000000"),
     ("100n", "1E-7"), ("0", "0"), ("", "0"), ("lots", "0"), (8, "8")],
)  # fmt: skip
def test_quantities(text: object, value: str) -> None:
    assert quantity(text) == Decimal(value)


def test_one_pool_a_product_and_one_for_the_rest() -> None:
    nodes = [
        node("a", 8, "NVIDIA-H100-80GB-HBM3"), node("b", 4, "NVIDIA-A100-SXM4-80GB"), node("c"),
        node("cp", taints=[{"key": "node-role.kubernetes.io/control-plane", "effect": "NoSchedule"}]),
    ]  # fmt: skip
    pools = discover(nodes)
    assert pools["h100"].selector == {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}
    assert (pools["h100"].accelerator, pools["a100"].accelerator, pools["cpu"].accelerator) == ("H100", "A100", "")
    found = by_name(describe(nodes, pools, None, 2.0, {}))
    assert {name: one.pool for name, one in found.items() if one.role == "machine"} == {
        "a": "h100",
        "b": "a100",
        "c": "cpu",
    }
    assert found["a"].resources == Resources(31850, 64 << 30, 8, "H100", accelerator_memory=81559 << 20)
    assert found["a"].labels["zone"] == "z1"
    assert "feature.node.kubernetes.io/cpu" not in found["a"].labels
    assert found["h100/1"].role == "slot"
    levelled = by_name(describe(nodes, pools, None, 2.0, {}, ("zone",)))
    assert (levelled["h100/1"].labels["zone"], levelled["a"].labels["zone"]) == ("h100", "z1")


def test_products_of_one_kind_are_pools_of_their_own() -> None:
    nodes = [node("a", 8, "NVIDIA-H100-80GB-HBM3"), node("b", 8, "NVIDIA-H100-PCIe")]
    assert sorted(discover(nodes)) == ["h100-80gb-hbm3", "h100-pcie"]


def test_the_taint_of_accelerators_is_tolerated_and_others_keep_away() -> None:
    gpu = {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}
    own = {"key": "team", "value": "vision", "effect": "NoSchedule"}
    nodes = [node("a", 8, "NVIDIA-H100-PCIe", taints=[gpu]), node("b", 8, "NVIDIA-H100-PCIe", taints=[gpu, own])]
    pools = discover(nodes)
    assert pools["h100"].tolerations == ("nvidia.com/gpu=present:NoSchedule",)
    assert [one.name for one in describe(nodes, pools, None, 2.0, {}) if one.role == "machine"] == ["a"]
    theirs = {
        "v": PoolSettings(accelerator="H100", tolerations=("nvidia.com/gpu:NoSchedule", "team=vision:NoSchedule"))
    }
    assert [one.name for one in describe(nodes, theirs, None, 2.0, {}) if one.role == "machine"] == ["a", "b"]


@pytest.mark.parametrize(
    ("made", "health", "why"),
    [
        (node("a"), "healthy", ""),
        (node("a", conditions=[condition("Ready", message="stopped posting", status="Unknown")]), "suspect",
         "not ready: stopped posting"),
        (node("a", conditions=[READY, condition("DiskPressure", message="disk is full")]), "suspect",
         "DiskPressure: disk is full"),
        (node("a", unschedulable=True), "draining", "cordoned in Kubernetes"),
        (node("a", unschedulable=True, annotations={DRAINED: "bad fan"}), "draining", "bad fan"),
        (node("a", taints=[{"key": "node.kubernetes.io/out-of-service", "effect": "NoExecute"}]), "draining",
         "taint node.kubernetes.io/out-of-service"),
    ],
)  # fmt: skip
def test_health(made: dict[str, Any], health: str, why: str) -> None:
    found = by_name(describe([made], {"cpu": PoolSettings()}, None, 2.0, {}))["a"]
    assert (found.health, found.why) == (health, why)


def test_slots_are_as_large_as_a_machine_and_enough_to_queue() -> None:
    nodes = [node(f"n{i}", 8, "NVIDIA-H100-PCIe") for i in range(20)]
    slots = [one for one in describe(nodes, discover(nodes), None, 2.0, {}) if one.role == "slot"]
    assert len(slots) == 40
    assert {(one.resources.accelerators, one.pool) for one in slots} == {(8, "h100")}
    few = [one for one in describe(nodes[:1], discover(nodes), None, 2.0, {}) if one.role == "slot"]
    assert len(few) == 1 + SPARE


def test_what_every_node_has_is_not_offered_and_use_is_counted() -> None:
    def placed(name: str, cpu: str, owner: str) -> dict[str, Any]:
        return {
            "metadata": {"name": name, "namespace": "x", "ownerReferences": [{"kind": owner}]},
            "spec": {"nodeName": "a", "containers": [{"resources": {"requests": {"cpu": cpu, "memory": "1Gi"}}}]},
            "status": {"phase": "Running"},
        }

    pods = [slim_pod(placed("d", "850m", "DaemonSet")), slim_pod(placed("j", "4", "Job"))]
    found = by_name(describe([node("a")], {"cpu": PoolSettings()}, loads([pod for pod in pods if pod]), 2.0, {}))
    assert found["a"].used == Resources(4850, 2 << 30)
    assert found["a"].resources.milli_cpus == 31850
    assert found["cpu/1"].resources == Resources(31000, 63 << 30)


def test_a_pool_that_can_grow_has_slots_without_machines() -> None:
    growth = {"burst": Growth(Resources(96000, 10**12, 8, "H100"), 3)}
    found = describe([], {"burst": PoolSettings({"pool": "burst"}, accelerator="H100")}, None, 2.0, growth)
    assert len(found) == 3 + SPARE
    assert found[0].resources == growth["burst"].node


def test_a_pods_requests_are_counted_as_the_scheduler_does() -> None:
    spec = {
        "containers": [{"resources": {"requests": {"cpu": "1"}, "limits": {"cpu": "2", "nvidia.com/gpu": "4"}}}, {}],
        "initContainers": [
            {"resources": {"requests": {"cpu": "3", "memory": "1Gi"}}},
            {"restartPolicy": "Always", "resources": {"requests": {"cpu": "500m"}}},
        ],
        "overhead": {"cpu": "100m"},
    }
    counted = {name: Decimal(amount) for name, amount in pod_requests(spec).items()}
    assert counted == {"cpu": Decimal("3.1"), "memory": Decimal(1 << 30), "nvidia.com/gpu": Decimal(4)}
