"""The sections of a job file for one kind of engine each: options that only Slurm, Ray or Kubernetes has.

The same file runs elsewhere: an engine reads only its own section.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, Field

from muster.core.notation import Notation
from muster.core.spec_types import CANONICAL, DURATION_WORDS, ONE_DAY, Bytes, Text

# One word on a command line, or a name in a cluster: no blanks, and nothing that could be parsed as an option.
Word = Annotated[str, Field(pattern=r"^[^\s\x00-][^\s\x00]*$", max_length=1000)]
Option = Annotated[str, Field(pattern=r"^-[^\x00\r\n]+$", max_length=1000)]
LabelKey = Annotated[str, Field(pattern=r"^[A-Za-z0-9]([A-Za-z0-9._/-]*[A-Za-z0-9])?$", max_length=317)]
LabelValue = Annotated[str, Field(pattern=r"^([A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?)?$", max_length=63)]
DnsName = Annotated[str, Field(pattern=r"^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$", max_length=253)]
Toleration = Annotated[
    str, Field(pattern=r"^[^\s:=]+(=[^\s:=]*)?(:(NoSchedule|PreferNoSchedule|NoExecute))?$", max_length=400)
]
Volume = Annotated[str, Field(pattern=r"^(emptyDir|pvc:[^\s:]+|secret:[^\s:]+|hostPath:/[^\x00]*)$", max_length=4096)]
MountPath = Annotated[str, Field(pattern=r"^/[^\x00:]*$", max_length=4096)]

_WORD: Final = "one word"
_FLAG: Final = "`true` or `false`"
_DNS: Final = "lower case letters, digits, `-` and `.`"


class _Canonical(BaseModel):
    model_config = CANONICAL


class SlurmSection(_Canonical):
    """What `sbatch` takes beside what the job says already."""

    qos: Annotated[
        Word | None,
        Field(description="Quality of service. The engine's unless given."),
        Notation("text", _WORD, "high"),
    ] = None
    account: Annotated[
        Word | None,
        Field(description="Account that is charged. The engine's unless given."),
        Notation("text", _WORD, "team-a"),
    ] = None
    gres: Annotated[
        Word | None,
        Field(description="Generic resources of a node, in place of what `accelerators` asks for."),
        Notation("text", _WORD, "gpu:h100:4"),
    ] = None
    constraint: Annotated[
        Word | None, Field(description="Features that the nodes must have."), Notation("text", _WORD, "nvlink")
    ] = None
    reservation: Annotated[
        Word | None, Field(description="Reservation to run in."), Notation("text", _WORD, "maint-2")
    ] = None
    dependency: Annotated[
        Word | None,
        Field(description="Slurm jobs that it waits for, as Slurm writes it."),
        Notation("text", _WORD, "afterok:1234"),
    ] = None
    nice: Annotated[
        Annotated[int, Field(ge=-2_147_483_645, le=2_147_483_645)] | None,
        Field(description="Slurm's nice value. From the priority unless given."),
        Notation("integer", "a whole number", "100"),
    ] = None
    exclusive: Annotated[
        bool, Field(description="Whether nobody else may use its nodes."), Notation("flag", _FLAG, "true")
    ] = False
    nodelist: Annotated[
        Word | None, Field(description="Nodes that it must have."), Notation("text", _WORD, "node[1-4]")
    ] = None
    exclude: Annotated[
        Word | None, Field(description="Nodes that it must not have."), Notation("text", _WORD, "node7")
    ] = None
    signal: Annotated[
        float,
        Field(ge=0, le=ONE_DAY, description="How long before the time limit it is told to save and leave."),
        Notation("duration", f"{DURATION_WORDS}, up to one day", "60s"),
    ] = 60.0
    requeue: Annotated[
        bool,
        Field(description="Whether Slurm may queue it again after preemption or a node's failure."),
        Notation("flag", _FLAG, "false"),
    ] = True
    extra: Annotated[
        tuple[Option, ...],
        Field(description="Further options of `sbatch`, one a line, exactly as it takes them."),
        Notation("list", "a list of options such as `[--hint=nomultithread]`", "[--hint=nomultithread]",
                item="one option with its value, such as `--hint=nomultithread`"),
    ] = ()  # fmt: skip


class RaySection(_Canonical):
    """How the job uses Ray."""

    driver: Annotated[
        bool,
        Field(description="Whether the command is a Ray program of its own: worker 0 alone starts it, with "
              "`RAY_ADDRESS` set, and the resources are left for the program to ask for."),
        Notation("flag", _FLAG, "true"),
    ] = False  # fmt: skip
    runtime_env: Annotated[
        dict[str, Any],
        Field(description="Ray's runtime environment of the workers: `pip`, `env_vars`, `working_dir` and so on."),
        Notation("json", "a mapping such as `{pip: [einops]}`", "{pip: [einops]}"),
    ] = {}


KubernetesForm = Literal["job", "jobset", "trainjob", "pytorchjob"]


class KubernetesSection(_Canonical):
    """How the job becomes objects of Kubernetes. The engine's settings list which names it may use."""

    form: Annotated[
        KubernetesForm | None,
        Field(description="What it is rendered as. The engine's unless given."),
        Notation("choice", "`job`, `jobset`, `trainjob` or `pytorchjob`", "jobset"),
    ] = None
    namespace: Annotated[
        DnsName | None,
        Field(description="Namespace of its objects. The engine's unless given."),
        Notation("text", _DNS, "research"),
    ] = None
    queue: Annotated[
        DnsName | None,
        Field(description="Kueue's LocalQueue. The pool's unless given."),
        Notation("text", _DNS, "team-a"),
    ] = None
    scheduler: Annotated[
        Literal["default-scheduler", "volcano", "kai-scheduler"] | None,
        Field(description="Which scheduler places the pods."),
        Notation("choice", "`default-scheduler`, `volcano` or `kai-scheduler`", "volcano"),
    ] = None
    service_account: Annotated[
        DnsName | None, Field(description="Service account of the pods."), Notation("text", _DNS, "trainer")
    ] = None
    node_selector: Annotated[
        dict[LabelKey, LabelValue],
        Field(description="Labels that the nodes must have."),
        Notation("mapping", "a mapping of labels to values", "{disk: nvme}", item="a label's key and its value"),
    ] = {}
    tolerations: Annotated[
        tuple[Toleration, ...],
        Field(description="Taints that it puts up with."),
        Notation("list", 'a list such as `["nvidia.com/gpu:NoSchedule"]`', '["dedicated=ml:NoSchedule"]',
                item="`key=value:Effect`, `key:Effect` or `key`; effects are NoSchedule, PreferNoSchedule, NoExecute"),
    ] = ()  # fmt: skip
    priority_class: Annotated[
        DnsName | None, Field(description="PriorityClass of the pods."), Notation("text", _DNS, "batch-high")
    ] = None
    shared_memory: Annotated[
        Bytes | None,
        Field(description="Size of `/dev/shm`. Half of the pod's memory unless given."),
        Notation("size", "a size with its unit, such as `16GB`", "16GB", ("shm_size",)),
    ] = None
    volumes: Annotated[
        dict[MountPath, Volume],
        Field(description="Where in the container → what is mounted there."),
        Notation("mapping", "a mapping such as `{/data: pvc:datasets}`", '{/data: "pvc:datasets"}',
                item="an absolute path, and `pvc:NAME`, `hostPath:PATH`, `emptyDir` or `secret:NAME`"),
    ] = {}  # fmt: skip
    pull_secrets: Annotated[
        tuple[DnsName, ...],
        Field(description="Secrets with which the image is pulled."),
        Notation("list", "a list of names", "[registry]", item="the name of a Secret"),
    ] = ()
    topology: Annotated[
        LabelKey | None,
        Field(description="Node label that all pods of the gang share."),
        Notation("text", "a label's key", "topology.kubernetes.io/zone"),
    ] = None
    labels: Annotated[
        dict[LabelKey, LabelValue],
        Field(description="Labels of the objects, beside Muster's own."),
        Notation("mapping", "a mapping of labels to values", "{team: nlp}", item="a label's key and its value"),
    ] = {}
    annotations: Annotated[
        dict[LabelKey, Text],
        Field(description="Annotations of the pods."),
        Notation("mapping", "a mapping of keys to text", "{example.com/note: first}", item="a key and text for it"),
    ] = {}
    pod: Annotated[
        dict[str, Any],
        Field(description="Whatever else the pod's spec should hold, as far as the engine's settings allow it: it is "
              "merged in last."),
        Notation("json", "a mapping, as in a pod's `spec`", "{securityContext: {runAsUser: 1000}}"),
    ] = {}  # fmt: skip
