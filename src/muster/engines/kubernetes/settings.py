"""The settings of a Kubernetes engine, and the paths of a worker's input in its pod."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, get_args

from muster.core.spec_engines import KubernetesForm as Form
from muster.engines.kubernetes.allow import Allow, ProjectSettings

FORMS: Final[tuple[Form, ...]] = get_args(Form)

# Labels and annotations of every object of a gang.
INSTALLATION: Final = "muster.dev/installation"
JOB: Final = "muster.dev/job"
ATTEMPT: Final = "muster.dev/attempt"
CHECK: Final = "muster.dev/check"  # of a node's check, instead of the two: the name of its Job
MANAGED_BY: Final = "app.kubernetes.io/managed-by"
MANAGER: Final = "muster"
# Labels with the worker's number: of indexed Jobs, and of PyTorchJobs.
COMPLETION_INDEX: Final = "batch.kubernetes.io/job-completion-index"
REPLICA_INDEX: Final = "training.kubeflow.org/replica-index"

# Folders in a worker's container.
GANG_FOLDER: Final = "/muster/gang"  # the Secret, with gang.json
PACKAGE_FOLDER: Final = "/muster/package"  # the ConfigMap, with muster.pyz
SCRATCH_FOLDER: Final = "/muster/scratch"  # an emptyDir of the pod
CHECKPOINTS_FOLDER: Final = "/muster/checkpoints"  # the claim or host folder that `checkpoints` names
GANG_FILE: Final = "gang.json"
PACKAGE_FILE: Final = "muster.pyz"

CONTAINER: Final = "worker"
GPU: Final = "nvidia.com/gpu"
# Below the range that Linux uses for outgoing connections, so that it is free until rank 0 listens.
PORT: Final = 29400

# Levels of a job's `topology` that need no setting: labels that the nodes of every cloud have.
TOPOLOGY: Final = {"zone": "topology.kubernetes.io/zone", "region": "topology.kubernetes.io/region"}


@dataclass(frozen=True, slots=True)
class PoolSettings:
    """A class of nodes: how to recognize them, and what a pod needs to be scheduled there."""

    selector: Mapping[str, str] = field(default_factory=dict)  # labels that its nodes have
    queue: str = ""  # Kueue LocalQueue of its gangs; with Volcano or KAI as scheduler, one of their queues
    accelerator: str = ""  # Muster's name for the accelerator of these nodes, such as H100
    resource: str = GPU  # the extended resource that counts the accelerators
    tolerations: tuple[str, ...] = ()  # `key=value:Effect` or `key:Effect`


@dataclass(frozen=True, slots=True)
class KubeSettings:
    installation: str = ""  # id of this Muster: see `Home.installation`
    key: bytes = field(default=b"", repr=False)  # see `Home.key`: names of Secrets are derived from it
    namespace: str = "default"
    namespaces: tuple[str, ...] = ()  # that any job may ask for, besides its default one
    allow: Allow = field(default_factory=Allow)  # what job files of any project may ask for
    projects: Mapping[str, ProjectSettings] = field(default_factory=dict)
    unlisted_projects: str = "default"  # `refuse`: jobs of projects without their own settings are refused
    run_as_non_root: bool = False  # the kubelet starts no container as root
    network_policy: bool = False  # a NetworkPolicy for each gang: only its own pods reach it
    form: Form = "job"
    image: str = "python:3.12-slim"  # for jobs that name none
    python: str = "python3"  # 3.11 or newer, in the image
    package: str = "muster-worker"  # the ConfigMap that holds the launcher's package
    service_account: str = ""  # of the workers, which need no rights in the cluster
    # `pvc:NAME`, `hostPath:/FOLDER`, or s3://bucket/folder, gs://..., az://...; "": in the pod, and deleted with it.
    checkpoints: str = ""
    scratch: str = ""  # size limit of a pod's scratch folder, as a Kubernetes quantity; "": no limit
    shared_memory: str = ""  # size limit of /dev/shm, as a quantity; "": as much as the pod may use
    port: int = PORT
    scheduler: str = ""  # `volcano`, `kai-scheduler` or any other name; "": the cluster's own
    queue: str = ""  # for pools without a queue
    pull_secrets: tuple[str, ...] = ()
    priority_classes: Mapping[str, str] = field(default_factory=dict)  # minimum priority → PriorityClass
    labels: Mapping[str, str] = field(default_factory=dict)  # of every object
    annotations: Mapping[str, str] = field(default_factory=dict)  # of the pods
    pools: Mapping[str, PoolSettings] = field(default_factory=dict)
    topology: Mapping[str, str] = field(default_factory=lambda: dict(TOPOLOGY))  # a job's topology level → nodes' label

    def allowed(self, project: str) -> Allow:
        own = self.projects.get(project)
        return self.allow | own.allow if own is not None else self.allow

    def namespaces_of(self, project: str) -> tuple[str, ...]:
        """The namespaces that a project's jobs may use; the first is the default."""
        own = self.projects.get(project)
        return (own.namespace if own is not None and own.namespace else self.namespace, *self.namespaces)


def checkpoint_dir(settings: KubeSettings, job: str) -> str:
    """The `checkpoint_dir` of a job's launch: in the mounted folder, at the URL, or in the pod's scratch folder."""
    if "://" in settings.checkpoints:
        return f"{settings.checkpoints.rstrip('/')}/{job}"
    root = CHECKPOINTS_FOLDER if settings.checkpoints else f"{SCRATCH_FOLDER}/checkpoints"
    return f"{root}/{job}"


def worker_of(pod: Mapping[str, Any]) -> int | None:
    """The worker number of a pod, in any form of gang; None for a pod without one."""
    metadata = pod.get("metadata") or {}
    marks = {**(metadata.get("annotations") or {}), **(metadata.get("labels") or {})}
    found = marks.get(COMPLETION_INDEX, marks.get(REPLICA_INDEX))
    return int(found) if found is not None and str(found).isdigit() else None
