"""The checks beyond the schemas, each broken in turn; and that the schemas of our own do refuse what they should."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import jsonschema
import pytest
from kubernetes_validate import ValidationError
from render_kit import a_gang, all_valid, valid

from muster.engines.kubernetes.render import manifests
from muster.engines.kubernetes.render_check import check
from muster.engines.kubernetes.settings import FORMS, KubeSettings

Break = Callable[[dict[str, Any]], None]


def _made(form: str = "job", **options: Any) -> list[dict[str, Any]]:
    return copy.deepcopy(manifests(a_gang(options={"form": form, **options}), KubeSettings(), None))


def _pod(job: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = job["spec"]["template"]["spec"]
    return found


def _worker(job: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = _pod(job)["containers"][0]
    return found


BROKEN: dict[str, tuple[Break, str]] = {
    "long name": (lambda job: job["metadata"].update(name="x" * 64), "metadata.name"),
    "digit first": (lambda job: job["metadata"].update(name="7up"), "metadata.name"),
    "namespace": (lambda job: job["metadata"].update(namespace="Team_A"), "metadata.namespace"),
    "label value": (lambda job: job["metadata"]["labels"].update(team="x" * 64), "labels.team"),
    "label key": (lambda job: job["metadata"]["labels"].update({"a/b/c": "x"}), "metadata.labels"),
    "label number": (lambda job: job["metadata"]["labels"].update(team=8), "labels.team"),
    "annotation key": (lambda job: job["metadata"]["annotations"].update({"no spaces": "x"}), "annotations"),
    "annotations": (lambda job: job["metadata"]["annotations"].update(big="x" * (256 << 10)), "annotations"),
    "restarts": (lambda job: _pod(job).update(restartPolicy="OnFailure"), "restartPolicy"),
    "backoff": (lambda job: job["spec"].update(backoffLimit=6), "backoffLimit"),
    "completions": (lambda job: job["spec"].update(completions=1), "spec"),
    "not indexed": (lambda job: job["spec"].update(completionMode="NonIndexed"), "spec"),
    "selector": (lambda job: _pod(job).update(nodeSelector={"disk": "a b"}), "nodeSelector.disk"),
    "account": (lambda job: _pod(job).update(serviceAccountName="Ada L."), "serviceAccountName"),
    "effect": (lambda job: _pod(job)["tolerations"][0].update(effect="Never"), "tolerations[0]"),
    "volume twice": (lambda job: _pod(job)["volumes"].append({"name": "gang", "emptyDir": {}}), "volumes"),
    "claim": (lambda job: _pod(job)["volumes"][0]["secret"].update(secretName="Ada"), "volumes.gang"),
    "size": (lambda job: _pod(job)["volumes"][3]["emptyDir"].update(sizeLimit="16GB"), "sizeLimit"),
    "no such volume": (lambda job: _worker(job)["volumeMounts"][0].update(name="gone"), "volumeMounts"),
    "mounted twice": (lambda job: _worker(job)["volumeMounts"][0].update(mountPath="/dev/shm"), "volumeMounts"),
    "relative mount": (lambda job: _worker(job)["volumeMounts"][0].update(mountPath="data"), "volumeMounts"),
    "no image": (lambda job: _worker(job).update(image=""), "image"),
    "variable twice": (lambda job: _worker(job)["env"].append({"name": "MUSTER_NODE", "value": "x"}), "env"),
    "number": (lambda job: _worker(job)["resources"]["requests"].update(cpu=16), "resources.cpu"),
    "half a GPU": (lambda job: _gpus(job, "500m", "500m"), "nvidia.com/gpu"),
    "GPUs that differ": (lambda job: _gpus(job, "4", "8"), "nvidia.com/gpu"),
}


def _gpus(job: dict[str, Any], request: str, limit: str) -> None:
    wants = _worker(job)["resources"]
    wants["requests"]["nvidia.com/gpu"], wants["limits"]["nvidia.com/gpu"] = request, limit


@pytest.mark.parametrize("name", BROKEN)
def test_what_breaks_a_rule_is_found_and_named(name) -> None:
    service, job = _made()
    all_valid([service, job])
    broken, where = BROKEN[name]
    broken(job)
    found = check([service, job])
    assert found, name
    assert any(where in problem.where for problem in found), [str(problem) for problem in found]


@pytest.mark.parametrize("form", FORMS)
def test_rules_hold_in_every_form(form) -> None:
    made = _made(form, labels={"team": "x" * 64}, volumes={"/data": "pvc:Not_A_Name"})
    where = [problem.where for problem in check(made)]
    assert any("labels.team" in one for one in where)
    assert any("volumes.mount-0" in one for one in where)


@pytest.mark.parametrize(("form", "break_it"), [
    ("job", lambda spec: spec.update(paralelism=2)),
    ("jobset", lambda spec: spec["replicatedJobs"][0].update(replica=1)),
    ("jobset", lambda spec: spec["network"].update(subdomain="Not-A-Name")),
    ("trainjob", lambda spec: spec.pop("runtimeRef")),
    ("trainjob", lambda spec: spec["trainer"].update(numNodes="2")),
    ("pytorchjob", lambda spec: spec["runPolicy"].update(cleanPodPolicy="Some")),
    ("pytorchjob", lambda spec: spec["pytorchReplicaSpecs"].update(Launcher={})),
])  # fmt: skip
def test_the_schemas_refuse_what_is_not_in_them(form, break_it) -> None:
    last = _made(form)[-1]
    valid(last)
    break_it(last["spec"])
    with pytest.raises((jsonschema.ValidationError, ValidationError)):
        valid(last)


@pytest.mark.parametrize("form", ["jobset", "pytorchjob"])
def test_pods_within_other_objects_are_checked_by_kubernetes_own_schema(form) -> None:
    last = _made(form, pod={"dnsPolice": "ClusterFirst"})[-1]
    with pytest.raises(ValidationError, match="dnsPolice"):
        valid(last)
