"""What is set of a Kubernetes engine, and where a worker's pod finds what it is given."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from muster.engines.kubernetes.allow import Allow, ProjectSettings

Form = Literal["job", "jobset", "trainjob", "pytorchjob"]
FORMS: Final[tuple[Form, ...]] = ("job", "jobset", "trainjob", "pytorchjob")

# Labels and annotations of everything that is made for a gang.
INSTALLATION: Final = "muster.dev/installation"
JOB: Final = "muster.dev/job"
ATTEMPT: Final = "muster.dev/attempt"
MANAGED_BY: Final = "app.kubernetes.io/managed-by"
MANAGER: Final = "muster"
# Where a pod says which worker of the gang it is: those of indexed Jobs, and those of PyTorchJobs.
COMPLETION_INDEX: Final = "batch.kubernetes.io/job-completion-index"
REPLICA_INDEX: Final = "training.kubeflow.org/replica-index"

# Folders of a worker's container.
GANG_FOLDER: Final = "/muster/gang"  # the Secret, with gang.json
PACKAGE_FOLDER: Final = "/muster/package"  # the ConfigMap, with muster.pyz
SCRATCH_FOLDER: Final = "/muster/scratch"  # an emptyDir of the pod
CHECKPOINTS_FOLDER: Final = "/muster/checkpoints"  # the claim or host folder that `checkpoints` names
GANG_FILE: Final = "gang.json"
PACKAGE_FILE: Final = "muster.pyz"

CONTAINER: Final = "worker"
GPU: Final = "nvidia.com/gpu"
# Below the range from which Linux picks ports for outgoing connections: nobody has it before rank 0 listens.
PORT: Final = 29400

# Levels of a job's `topology` that need no setting: labels that every cloud's nodes have.
TOPOLOGY: Final = {"zone": "topology.kubernetes.io/zone", "region": "topology.kubernetes.io/region"}


@dataclass(frozen=True, slots=True)
class PoolSettings:
    """A class of nodes: who they are, and what a pod must say to get there."""

    selector: Mapping[str, str] = field(default_factory=dict)  # labels that its nodes have
    queue: str = ""  # Kueue LocalQueue of its gangs; with Volcano or KAI as scheduler, a queue of theirs
    accelerator: str = ""  # what Muster calls the accelerator of these nodes, such as H100
    resource: str = GPU  # the extended resource that counts them
    tolerations: tuple[str, ...] = ()  # `key=value:Effect` or `key:Effect`


@dataclass(frozen=True, slots=True)
class KubeSettings:
    installation: str = ""  # mark of this Muster: see `Home.installation`
    key: bytes = field(default=b"", repr=False)  # see `Home.key`: names of Secrets come of it
    namespace: str = "default"
    namespaces: tuple[str, ...] = ()  # that any job may ask for, beside the one that it has
    allow: Allow = field(default_factory=Allow)  # what job files may ask for, of any project
    projects: Mapping[str, ProjectSettings] = field(default_factory=dict)
    unlisted_projects: str = "default"  # `refuse`: jobs of projects without settings of their own
    run_as_non_root: bool = False  # the kubelet starts no container as root
    network_policy: bool = False  # a NetworkPolicy for each gang: only its own pods reach it
    form: Form = "job"
    image: str = "python:3.12-slim"  # of jobs that name none
    python: str = "python3"  # 3.11 or newer, in the image
    package: str = "muster-worker"  # the ConfigMap that holds the launcher's package
    service_account: str = ""  # of the workers; they need no rights in the cluster
    # `pvc:NAME`, `hostPath:/FOLDER`, or a URL such as s3://bucket/folder; "" keeps them in the pod, gone with it.
    checkpoints: str = ""
    scratch: str = ""  # most bytes of a pod's scratch folder, as a Kubernetes quantity; "" is no limit
    shared_memory: str = ""  # most bytes of /dev/shm, as a quantity; "" is as much as the pod may use
    port: int = PORT
    scheduler: str = ""  # `volcano`, `kai-scheduler` or any other by name; "" is the cluster's own
    queue: str = ""  # where the pool names none
    pull_secrets: tuple[str, ...] = ()
    priority_classes: Mapping[str, str] = field(default_factory=dict)  # least priority → PriorityClass
    labels: Mapping[str, str] = field(default_factory=dict)  # of everything that is made
    annotations: Mapping[str, str] = field(default_factory=dict)  # of the pods
    pools: Mapping[str, PoolSettings] = field(default_factory=dict)
    topology: Mapping[str, str] = field(default_factory=lambda: dict(TOPOLOGY))  # level of a job's → nodes' label

    def allowed(self, project: str) -> Allow:
        own = self.projects.get(project)
        return self.allow | own.allow if own is not None else self.allow

    def namespaces_of(self, project: str) -> tuple[str, ...]:
        """Where a project's jobs may be; the first is where they are unless they say."""
        own = self.projects.get(project)
        return (own.namespace if own is not None and own.namespace else self.namespace, *self.namespaces)


def checkpoint_dir(settings: KubeSettings, job: str) -> str:
    """The `checkpoint_dir` of a job's launch: within the mounted folder, or at the URL, or in the pod's scratch."""
    if "://" in settings.checkpoints:
        return f"{settings.checkpoints.rstrip('/')}/{job}"
    root = CHECKPOINTS_FOLDER if settings.checkpoints else f"{SCRATCH_FOLDER}/checkpoints"
    return f"{root}/{job}"


def worker_of(pod: Mapping[str, Any]) -> int | None:
    """Which worker of its gang a pod is, in whatever form the gang was rendered; None for one that does not say."""
    metadata = pod.get("metadata") or {}
    marks = {**(metadata.get("annotations") or {}), **(metadata.get("labels") or {})}
    found = marks.get(COMPLETION_INDEX, marks.get(REPLICA_INDEX))
    return int(found) if found is not None and str(found).isdigit() else None
