"""The Job that checks a node: made as gangs are from the engine's settings, bound to the node, without a Secret."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from muster.engines.kubernetes.node_check import check_job
from muster.engines.kubernetes.settings import KubeSettings, PoolSettings
from rigs.kube_schema import check_create

POOL = PoolSettings({"gpu": "h100"}, "", "H100", tolerations=("spot:NoSchedule",))
SETTINGS = KubeSettings(
    installation="0123456789", namespace="training", image="ours:1", python="python3.12", service_account="workers",
    checkpoints="hostPath:/checkpoints", run_as_non_root=True, pull_secrets=("registry",), labels={"team": "ml"},
    pools={"h100": POOL},
)  # fmt: skip


def made(asked: int = 2, devices: int = 2, **changes: Any) -> dict[str, Any]:
    found = check_job("muster-check-1", "node-a", replace(SETTINGS, **changes), "h100", asked, devices)
    check_create(found)
    return found


def test_it_is_bound_to_the_node_and_has_what_gangs_have() -> None:
    job = made()
    assert job["metadata"]["labels"] == {
        "team": "ml", "app.kubernetes.io/managed-by": "muster", "muster.dev/installation": "0123456789",
        "muster.dev/check": "muster-check-1",
    }  # fmt: skip
    pod = job["spec"]["template"]["spec"]
    ((term,),) = [
        one["matchFields"]
        for one in pod["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"][
            "nodeSelectorTerms"
        ]
    ]
    assert term == {"key": "metadata.name", "operator": "In", "values": ["node-a"]}
    assert pod["tolerations"] == [{"operator": "Exists"}]
    assert (pod["serviceAccountName"], pod["imagePullSecrets"]) == ("workers", [{"name": "registry"}])
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["automountServiceAccountToken"] is False
    (worker,) = pod["containers"]
    assert worker["image"] == "ours:1"
    assert worker["securityContext"] == {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    assert worker["resources"]["limits"]["nvidia.com/gpu"] == "2"
    assert worker["command"][0] == "python3.12"
    assert worker["command"][2:] == ["check", "/muster/scratch", "--result=/dev/termination-log", "--accelerators=2"]


def test_it_reads_no_secret_and_no_checkpoint_and_ends_by_itself() -> None:
    spec = made(asked=0)["spec"]
    names = {one["name"] for one in spec["template"]["spec"]["volumes"]}
    (worker,) = spec["template"]["spec"]["containers"]
    assert names == {one["name"] for one in worker["volumeMounts"]} == {"package", "scratch", "shared-memory"}
    assert worker["command"][-1] == "--no-accelerators"
    assert "nvidia.com/gpu" not in str(worker["resources"])
    assert (spec["activeDeadlineSeconds"], spec["ttlSecondsAfterFinished"], spec["backoffLimit"]) == (90, 60, 0)


@pytest.mark.parametrize("scheduler", ["", "volcano", "kai-scheduler"])
def test_it_goes_through_the_clusters_queues(scheduler: str) -> None:
    job = made(queue="research", scheduler=scheduler)
    template = job["spec"]["template"]
    admitted = job["metadata"]["labels"].get("kueue.x-k8s.io/queue-name"), job["spec"].get("suspend")
    assert admitted == (("research", True) if not scheduler else (None, None))
    assert template["spec"].get("schedulerName", "") == scheduler
    assert "scheduling.k8s.io/group-name" not in template["metadata"].get("annotations", {})
