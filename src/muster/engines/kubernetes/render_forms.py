"""The forms of a gang in Kubernetes: an indexed Job, a JobSet, a Kubeflow TrainJob (v2) or PyTorchJob (v1).

In every form, no pod is ever restarted (a restart is a new attempt, with new objects), and a pod that fails ends the
gang.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from muster.core.spec_engines import KubernetesForm as Form
from muster.engines.kubernetes.render_options import VOLCANO, Options
from muster.engines.kubernetes.render_pod import Doc
from muster.engines.kubernetes.settings import COMPLETION_INDEX, CONTAINER, REPLICA_INDEX

QUEUE_LABEL: Final = "kueue.x-k8s.io/queue-name"
JOBSET: Final = "jobset.x-k8s.io/v1alpha2"
TRAINER: Final = "trainer.kubeflow.org/v1alpha1"
# Kubeflow Trainer's names for the job of the workers, for their container, and for the label that marks them.
_NODE: Final = "node"
_ANCESTOR: Final = {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}


@dataclass(frozen=True, slots=True)
class Parts:
    """The input of the forms."""

    name: str
    count: int  # workers
    options: Options
    labels: Mapping[str, str]  # for every object
    annotations: Mapping[str, str]
    template: Callable[[list[Doc]], Doc]  # the pod, from the variables with its worker number


def documents(parts: Parts) -> list[Doc]:
    """The gang's own objects; the one that starts it comes last."""
    group = [_pod_group(parts)] if parts.options.scheduler == VOLCANO else []
    return [*group, *_FORMS[parts.options.form](parts)]


def metadata(parts: Parts, queued: bool = False) -> Doc:
    labels = {**parts.options.labels, **parts.labels}
    if queued and parts.options.kueue:
        labels[QUEUE_LABEL] = parts.options.queue
    return {
        "name": parts.name,
        "namespace": parts.options.namespace,
        "labels": labels,
        "annotations": dict(parts.annotations),
    }


def _job(parts: Parts) -> list[Doc]:
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata(parts),
        # DNS names are needed before pods are ready, because workers wait for rank 0.
        "spec": {"clusterIP": "None", "publishNotReadyAddresses": True, "selector": dict(parts.labels)},
    }
    template = parts.template(_indexed(f"{parts.name}-0.{parts.name}"))
    template["spec"]["subdomain"] = parts.name
    spec = {**_suspended(parts), **_job_spec(parts, template)}
    return [service, {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata(parts, True), "spec": spec}]


def _jobset(parts: Parts) -> list[Doc]:
    spec = {**_suspended(parts), **_jobset_spec(parts, {})}
    return [{"apiVersion": JOBSET, "kind": "JobSet", "metadata": metadata(parts, True), "spec": spec}]


def _trainjob(parts: Parts) -> list[Doc]:
    """Uses its own runtime, because a cluster's standard runtimes let the kubelet restart a failed container."""
    runtime = {
        "apiVersion": TRAINER,
        "kind": "TrainingRuntime",
        "metadata": metadata(parts),
        "spec": {
            "mlPolicy": {"numNodes": parts.count},
            "template": {"spec": _jobset_spec(parts, {"labels": _ANCESTOR})},
        },
    }
    spec = {
        **_suspended(parts),
        "runtimeRef": {"apiGroup": "trainer.kubeflow.org", "kind": "TrainingRuntime", "name": parts.name},
        "trainer": {"numNodes": parts.count},
    }
    return [runtime, {"apiVersion": TRAINER, "kind": "TrainJob", "metadata": metadata(parts, True), "spec": spec}]


def _pytorchjob(parts: Parts) -> list[Doc]:
    """Has workers only, so that the replica's index is the worker's number; the operator makes a service for each."""
    number = {"fieldRef": {"fieldPath": f"metadata.labels['{REPLICA_INDEX}']"}}
    template = parts.template([
        {"name": "MUSTER_WORKER", "valueFrom": number},
        {"name": "MUSTER_MASTER", "value": f"{parts.name}-worker-0"},
    ])  # fmt: skip
    worker = {"replicas": parts.count, "restartPolicy": "Never", "template": _renamed(template, "pytorch")}
    spec = {
        "runPolicy": {**_suspended(parts), "backoffLimit": 0, "cleanPodPolicy": "Running"},
        "pytorchReplicaSpecs": {"Worker": worker},
    }
    return [{"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": metadata(parts, True), "spec": spec}]


def _pod_group(parts: Parts) -> Doc:
    spec: Doc = {"minMember": parts.count}
    if parts.options.queue:
        spec["queue"] = parts.options.queue
    if parts.options.priority_class:
        spec["priorityClassName"] = parts.options.priority_class
    return {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "PodGroup",
        "metadata": metadata(parts),
        "spec": spec,
    }


def _job_spec(parts: Parts, template: Doc) -> Doc:
    return {
        "completionMode": "Indexed",
        "completions": parts.count,
        "parallelism": parts.count,
        "backoffLimit": 0,
        "template": template,
    }


def _jobset_spec(parts: Parts, job_metadata: Doc) -> Doc:
    template = parts.template(_indexed(f"{parts.name}-{_NODE}-0-0.{parts.name}"))
    job = {"spec": _job_spec(parts, _renamed(template, _NODE))}
    return {
        "network": {"enableDNSHostnames": True, "publishNotReadyAddresses": True, "subdomain": parts.name},
        "failurePolicy": {"maxRestarts": 0},
        "replicatedJobs": [
            {
                "name": _NODE,
                "replicas": 1,
                "template": {"metadata": job_metadata, **job} if job_metadata else job,
            }
        ],
    }


def _indexed(master: str) -> list[Doc]:
    number = {"fieldRef": {"fieldPath": f"metadata.annotations['{COMPLETION_INDEX}']"}}
    return [{"name": "MUSTER_WORKER", "valueFrom": number}, {"name": "MUSTER_MASTER", "value": master}]


def _suspended(parts: Parts) -> Doc:
    """Suspended at first: Kueue resumes it when it is admitted."""
    return {"suspend": True} if parts.options.kueue else {}


def _renamed(template: Doc, name: str) -> Doc:
    spec: dict[str, Any] = template["spec"]
    containers = [{**one, "name": name} if one["name"] == CONTAINER else one for one in spec["containers"]]
    return {**template, "spec": {**spec, "containers": containers}}


_FORMS: Final[dict[Form, Callable[[Parts], list[Doc]]]] = {
    "job": _job,
    "jobset": _jobset,
    "trainjob": _trainjob,
    "pytorchjob": _pytorchjob,
}
