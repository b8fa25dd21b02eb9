"""The canonical form of a job file: frozen models; each field states its meaning, its unit and how it is written."""

from __future__ import annotations

from functools import lru_cache
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, Field

from muster.api.words import Kind as Kind
from muster.api.words import Rung
from muster.core import units
from muster.core.dump import to_yaml
from muster.core.needs import Outcome
from muster.core.notation import Notation
from muster.core.resources import Resources
from muster.core.rules import WorkClass
from muster.core.spec_engines import KubernetesSection, RaySection, SlurmSection
from muster.core.spec_managed import AzureMLSection, SageMakerSection, VertexSection
from muster.core.spec_types import (
    CANONICAL,
    DURATION_WORDS,
    LABEL_WORDS,
    ONE_DAY,
    TEXT_MAX,
    DataName,
    EnvName,
    JobName,
    Label,
    Seconds,
    TagName,
    Text,
)
from muster.core.start import PATTERN

_AMOUNT: Final = r"^[0-9]+(\.[0-9]+)?( [A-Z]{3})?$"
AMOUNT_WORDS: Final = "an amount with its currency, such as `200 USD`; the price book's currency if none is named"
PlacementName = Literal["pack", "spread", "balanced", "group", "locality"]
RetryOn = Literal["node", "worker", "preempted", "error"]

# The launcher sets these on every rank, so a job may not. Names that start with RESERVED_PREFIX belong to Muster.
RESERVED_PREFIX: Final = "MUSTER_"
RESERVED: Final = frozenset({
    "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "NODE_RANK", "MASTER_ADDR", "MASTER_PORT",
})  # fmt: skip

# The sections for one kind of engine or service each.
SECTIONS: Final = ("slurm", "ray", "kubernetes", "sagemaker", "vertex", "azureml")


class _Canonical(BaseModel):
    model_config = CANONICAL


class WorkerResources(_Canonical):
    """What one node of the gang needs."""

    # In a job file `accelerators` gives both, as in `H100:8`; here they are separate, for arithmetic.
    accelerator: Annotated[str, Field(max_length=64)] = ""
    accelerators: Annotated[
        int,
        Field(ge=0, le=1024, description="Accelerators on each node. A bare number takes any kind; `h100` is `H100`. "
              "A number under 1, such as `H100:0.5`, is a part of one, which others may share."),
        Notation("accelerators", "a kind and a count such as `H100:8`, `H100` (one), `H100:0.5` (a part of one), or a "
                "number up to 1024 (any kind)", "H100:8", ("gpus",)),
    ] = 0  # fmt: skip
    # Thousandths of one accelerator; 500 for `H100:0.5`.
    share: Annotated[int, Field(ge=1, le=1000)] = 1000
    accelerator_memory: Annotated[
        Annotated[int, Field(ge=1, le=2**50)] | None,
        Field(description="Memory that each accelerator must have at least. Any unless given."),
        Notation("size", "a size with its unit, such as `80GB`", "80GB", ("gpu_memory",)),
    ] = None
    cpus: Annotated[
        Annotated[float, Field(ge=0.001, le=100_000)] | None,
        Field(description="CPUs on each node, for all its ranks together. One for each rank unless given."),
        Notation("number", "a number of CPUs such as `16` or `0.5`", "16"),
    ] = None
    memory: Annotated[
        Annotated[int, Field(ge=1, le=2**60)] | None,
        Field(description="Memory on each node, for all its ranks together. A worker that goes past it is killed. "
              "Neither reserved nor limited unless given."),
        Notation("size", "a size with its unit, such as `64GB` (10^9) or `64GiB` (2^30)", "64GB", ("mem",)),
    ] = None  # fmt: skip


class Checkpoint(_Canonical):
    """When the job saves and how much of it is kept."""

    every: Annotated[
        Seconds | Literal["auto"] | None,
        Field(description="Time between saves; `auto` lets Muster choose. The program decides unless given."),
        Notation("duration_or_auto", f"{DURATION_WORDS}, or `auto`", "15m"),
    ] = None  # fmt: skip
    keep: Annotated[
        int,
        Field(ge=1, le=1_000_000, description="How many of the newest checkpoints are kept."),
        Notation("integer", "a whole number, at least 1", "3"),
    ] = 3
    wait: Annotated[
        Seconds,
        Field(description="How long a restarted program waits for the folder or bucket of its checkpoints."),
        Notation("duration", DURATION_WORDS, "10m"),
    ] = 600.0


class Topology(_Canonical):
    """How near to each other the nodes of the gang must be: levels are node labels such as `link`, `rack` or `zone`."""

    require: Annotated[
        Label | None,
        Field(description="All nodes of the gang have the same value of this label, or it does not start."),
        Notation("text", LABEL_WORDS, "rack"),
    ] = None
    prefer: Annotated[
        Label | None,
        Field(description="They have if it can be had now."),
        Notation("text", LABEL_WORDS, "link"),
    ] = None


class Retry(_Canonical):
    """When a gang that broke starts again."""

    max_restarts: Annotated[
        int,
        Field(ge=0, le=1_000_000, description="Restarts after a failure before the job is given up. 0 never restarts."),
        Notation("integer", "a whole number, 0 or more", "3"),
    ] = 3
    on: Annotated[
        tuple[RetryOn, ...],
        Field(description="What is worth another attempt: the `node` was lost, a `worker` was killed, it was "
              "`preempted`, or the program itself ended with an `error`."),
        Notation("list", "a list of `node`, `worker`, `preempted` and `error`", "[node, preempted]",
                item="`node`, `worker`, `preempted` or `error`"),
    ] = ("node", "worker", "preempted")  # fmt: skip
    backoff: Annotated[
        float,
        Field(ge=0, le=ONE_DAY, description="Wait before a restart."),
        Notation("duration", "a duration up to one day, such as `10s` or `2m`", "10s"),
    ] = 10.0
    warm: Annotated[
        bool,
        Field(description="Whether a process with the program's libraries imported is kept for the next attempt."),
        Notation("flag", "`true` or `false`", "false"),
    ] = True


class Hang(_Canonical):
    """What is done about a gang whose processes live and whose work does not go on."""

    action: Annotated[
        Literal["restart", "report", "off"],
        Field(description="`restart` stops it and starts it again from its last checkpoint, which counts as a restart "
              "of `retry`; `report` says so and does nothing; `off` does not look. A `session` is never looked at."),
        Notation("switch", "`on` (or `restart`), `report` or `off`", "off"),
    ] = "restart"  # fmt: skip
    least: Annotated[
        Seconds,
        Field(description="The shortest time without a step after which a program that reports steps may be judged. "
              "It is longer if its steps are slow: 2.5 times the p99 of its own step times."),
        Notation("duration", f"{DURATION_WORDS}, at most ten years", "1m"),
    ] = 25.0  # fmt: skip
    patience: Annotated[
        Seconds,
        Field(description="The time without any activity for a program that reports no steps, before the first steps, "
              "and for one that says that it compiles, loads, saves or evaluates."),
        Notation("duration", f"{DURATION_WORDS}, at most ten years", "10m"),
    ] = 1800.0  # fmt: skip


class Preflight(_Canonical):
    """What the job's preflight holds it to; with `rung`, the job is a rung itself, as `muster preflight` makes them."""

    throughput: Annotated[
        Annotated[float, Field(gt=0, le=1e15)] | None,
        Field(description="What the whole job is planned to do in a second, as the program reports it: `tokens_per_s`, "
              "`samples_per_s` and the like. The rung `canary` fails below nine tenths of it."),
        Notation("number", "a number of tokens, samples or the like in a second", "120000"),
    ] = None  # fmt: skip
    rung: Annotated[
        Rung | None,
        Field(description="The job is this rung of another's preflight. A program finds it in `MUSTER_PREFLIGHT`; "
              "`muster.train` and programs with the hook run their own checks for `unit` and then end."),
        Notation("choice", "`unit`, `resume`, `smoke`, `failure` or `canary`", "smoke"),
    ] = None  # fmt: skip
    steps: Annotated[
        Annotated[int, Field(ge=1, le=1_000_000)] | None,
        Field(description="After so many steps `muster.train` saves and ends; others find it in "
              "`MUSTER_PREFLIGHT_STEPS`. No limit unless given."),
        Notation("integer", "a whole number, at least 1", "100"),
    ] = None  # fmt: skip


class JobSpec(_Canonical):
    """One job, complete: durations in seconds, sizes in bytes, every default filled in."""

    name: Annotated[
        str,
        Field(pattern=r"^[a-z]([a-z0-9-]*[a-z0-9])?$", max_length=units.NAME_MAX,
              description="What people call the job. From the command unless given: `python train.py` is `train`."),
        Notation("name", "lower case letters, digits and `-`, starting with a letter, at most 50", "gpt-small"),
    ]  # fmt: skip
    kind: Annotated[
        Kind,
        Field(description="What sort of work it is."),
        Notation("choice", "`train`, `eval`, `data`, `sweep` or `session`", "train"),
    ] = "train"
    project: Annotated[
        Label,
        Field(description="Who owns and pays."),
        Notation("text", LABEL_WORDS, "language"),
    ] = "default"
    queue: Annotated[
        Label,
        Field(description="Whose share it uses."),
        Notation("text", LABEL_WORDS, "research"),
    ] = "default"
    pool: Annotated[
        Label | None,
        Field(description="The class of hardware it must run on. Any that fits unless given."),
        Notation("text", LABEL_WORDS, "h100-spot"),
    ] = None
    parent: Annotated[
        Annotated[str, Field(pattern=r"^[a-z][a-z0-9-]*-[0-9]+$", max_length=100)] | None,
        Field(description="Id of the job that it is part of, such as the sweep of a trial. Both are of one project."),
        Notation("text", "the id of a job, such as `lr-sweep-12`", "lr-sweep-12"),
    ] = None
    array: Annotated[
        Annotated[str, Field(pattern=r"^[0-9]+([0-9:%,-]*[0-9])?$", max_length=4096)] | None,
        Field(description="Runs it once for each index, as tasks of one array: `1-20`, `1-20:2`, `[3, 5, 9]`, and with "
              "`0-9%4` at most four at once. Each task is a job of its own, `NAME[3]`, which finds its index in "
              "`MUSTER_ARRAY_INDEX` (and `SLURM_ARRAY_TASK_ID`)."),
        Notation("array", "indexes such as `1-20`, `1-20:2`, `0-9%4` or `[3, 5, 9]`", "1-20"),
    ] = None  # fmt: skip
    needs: Annotated[
        dict[JobName, Outcome],
        Field(max_length=100,
              description="Jobs of the project that must be over before it may start, by name or id: with "
              "`needs: [prepare]` it starts when `prepare` has succeeded. In `{prepare: ended}` any end will do, and "
              "`{prepare: failed}` is met if it did not succeed. A name means what it means when the job is submitted: "
              "a job that is submitted in the same call, else the one that is not over, else the newest."),
        Notation("needs", "a list of at most 100 jobs such as `[prepare]`, or a mapping of jobs to `succeeded`, "
                "`ended` or `failed`", "[prepare]", ("depends_on",),
                item="the name or the id of a job, and `succeeded`, `ended` or `failed` for it"),
    ] = {}  # fmt: skip
    start_from: Annotated[
        Annotated[str, Field(pattern=PATTERN, max_length=120)] | None,
        Field(description="The checkpoint of another run that it starts from: `gpt-12` is the newest of that run that "
              "verifies when this job starts, `gpt-12@2000` that of the step. The run is named as in `needs`, and may "
              "be one of them; one of another project is named by its id, and whoever submits the job may read it."),
        Notation("text", "a run and perhaps a step, such as `gpt-12` or `gpt-12@2000`", "gpt-12@2000"),
    ] = None  # fmt: skip
    purpose: Annotated[
        Text | None,
        Field(description="Why, in a sentence: the first entry of the logbook."),
        Notation("text", "text", "baseline for the optimizer ablation"),
    ] = None
    workdir: Annotated[
        Annotated[str, Field(pattern=r"^[^\x00]+$", max_length=4096)] | None,
        Field(description="Directory in which the command runs; a relative one starts from the job file's folder."),
        Notation("path", "a directory", ".", ("working_dir",)),
    ] = None
    run: Annotated[
        str,
        # Empty for a job without nodes, which launches nothing.
        Field(pattern=r"^([^\x00]*[^\s\x00][^\x00]*)?$", max_length=TEXT_MAX,
              description="The command that each rank runs, given to the shell. Under `commands` it may be a list: "
              "they run one after the other and the first that fails ends it. Required, unless `num_nodes` is 0."),
        Notation("commands", "a command, at most 32,000 characters", "python train.py",
                ("commands", "command", "cmd", "entrypoint")),
    ]  # fmt: skip
    num_nodes: Annotated[
        int,
        Field(ge=0, le=10_000, description="Nodes in the gang. All start together or none does. With "
              "`{min: 2, max: 8}` it runs on as many of them as can be had. A `sweep` may have 0: it launches nothing "
              "and runs until it is ended."),
        Notation("nodes", "a whole number from 1 to 10000, or such numbers as in `{min: 2, max: 8}`", "2", ("nodes",)),
    ] = 1  # fmt: skip
    # The minimum number of nodes of an elastic gang; None: all of `num_nodes`. A job file writes both as
    # `num_nodes: {min: 2, max: 8}`.
    min_nodes: Annotated[int, Field(ge=1, le=10_000)] | None = None
    nproc: Annotated[
        Annotated[int, Field(ge=1, le=1024)] | None,
        Field(description="Ranks on each node. One for each accelerator, or one without any, unless given."),
        Notation("integer", "a whole number from 1 to 1024", "8", ("nproc_per_node",)),
    ] = None
    resources: Annotated[
        WorkerResources,
        Field(description="What each node of the gang needs."),
        Notation("section", "a mapping such as `{accelerators: \"H100:8\", memory: 64GB}`", "{cpus: 16}", lifted=True),
    ] = WorkerResources()  # fmt: skip
    envs: Annotated[
        dict[EnvName, Text],
        Field(description="Environment of the ranks. Values are text exactly as written, quotes or none. "
              "`MUSTER_*`, `RANK`, `WORLD_SIZE` and what else `torchrun` sets is reserved."),
        Notation("mapping", "a mapping of names to text", '{LR: "3e-4"}', ("env",),
                item="a name of letters, digits and `_` that does not start with a digit, and text for it"),
    ] = {}  # fmt: skip
    secrets: Annotated[
        tuple[EnvName, ...],
        Field(description="Names of secrets of the project that the ranks get in their environment. Never values. What "
              "they print and report is masked as `***`, but not in an encoded form such as base64."),
        Notation("list", "names only, such as `[HF_TOKEN]`", "[HF_TOKEN]", item="a name such as `HF_TOKEN`, no value"),
    ] = ()  # fmt: skip
    data: Annotated[
        tuple[DataName, ...],
        Field(description="Datasets that it reads, with their versions; kept with the run to repeat it by."),
        Notation("list", "a list of datasets such as `[c4-en@v3]`", "[c4-en@v3]", item="a dataset such as `c4-en@v3`"),
    ] = ()
    priority: Annotated[
        int,
        Field(ge=0, le=100, description="Higher goes first. `low` is 20, `normal` 50, `high` 75 and `urgent` 95."),
        Notation("priority", "`low`, `normal`, `high`, `urgent`, or a whole number from 0 to 100", "high"),
    ] = 50
    use_spot: Annotated[
        bool,
        Field(description="Whether it may run on nodes that can be taken away."),
        Notation("flag", "`true` or `false`", "true", ("spot",)),
    ] = False
    max_duration: Annotated[
        Seconds | None,
        Field(description="Running time, over all attempts, after which it is stopped. No limit unless given."),
        Notation("duration", f"{DURATION_WORDS}, at most ten years", "6h", ("time", "time_limit")),
    ] = None
    budget: Annotated[
        Annotated[str, Field(pattern=_AMOUNT, max_length=40)] | None,
        Field(description="What it may cost its project, over all attempts: when that is spent, it saves and is "
              "stopped. No limit unless given."),
        Notation("amount", AMOUNT_WORDS, "200 USD"),
    ] = None  # fmt: skip
    max_hourly_cost: Annotated[
        Annotated[str, Field(pattern=_AMOUNT, max_length=40)] | None,
        Field(description="What its nodes may cost together for an hour: it does not start in pools that cost more."),
        Notation("amount", AMOUNT_WORDS, "40 USD"),
    ] = None
    stop_grace: Annotated[
        float,
        Field(ge=0, le=ONE_DAY, description="Time to save and leave, between the request to stop and the kill."),
        Notation("duration", "a duration up to one day, such as `30s` or `2m`", "30s"),
    ] = 30.0
    log_limit: Annotated[
        Annotated[int, Field(ge=4096, le=2**50)] | None,
        Field(description="Output kept of each rank in each attempt. Past it the first and the last half stay, with a "
              "line between them that says how much is missing. What the server's `log_limit` says (64MB) unless "
              "given, and at most its `log_limit_max` (1GB)."),
        Notation("size", "a size with its unit, at least `4KiB`, such as `256MB`", "256MB"),
    ] = None  # fmt: skip
    checkpoint: Annotated[
        Checkpoint,
        Field(description="When it saves. `checkpoint: 15m` is short for `checkpoint: {every: 15m}`."),
        Notation("section", "a mapping such as `{every: 15m, keep: 3}`, or a duration", "{every: 15m}",
                shorthand="every"),
    ] = Checkpoint()  # fmt: skip
    retry: Annotated[
        Retry,
        Field(description="When it starts again. `retry: 3` is short for `retry: {max_restarts: 3}`."),
        Notation("section", "a mapping such as `{max_restarts: 3, backoff: 10s}`, or a whole number",
                "{max_restarts: 3}", shorthand="max_restarts"),
    ] = Retry()  # fmt: skip
    hang: Annotated[
        Hang,
        Field(description="What is done about a gang that hangs. `hang: off` is short for `hang: {action: off}`."),
        Notation("section", "`on`, `report`, `off`, or a mapping such as `{patience: 10m}`", "{patience: 10m}",
                shorthand="action"),
    ] = Hang()  # fmt: skip
    placement: Annotated[
        PlacementName,
        Field(description="How the gang is laid over the nodes."),
        Notation("choice", "`pack`, `spread`, `balanced`, `group` or `locality`", "pack"),
    ] = "pack"
    topology: Annotated[
        Topology,
        Field(description="How near to each other its nodes are. `topology: rack` is short for `{require: rack}`."),
        Notation("section", "a mapping such as `{require: rack, prefer: link}`, or a level", "{require: rack}",
                shorthand="require"),
    ] = Topology()  # fmt: skip
    group: Annotated[
        Label | None,
        Field(description="Jobs of one group are kept near to each other with `placement: group`."),
        Notation("text", LABEL_WORDS, "actor-learner"),
    ] = None
    near: Annotated[
        tuple[DataName, ...],
        Field(description="Datasets, caches or jobs (their checkpoints) to be near to with `placement: locality`. "
              "What `data` names unless given."),
        Notation("list", "a list such as `[c4-en@v3]`", "[c4-en@v3]", item="a name such as `c4-en@v3`"),
    ] = ()  # fmt: skip
    deadline: Annotated[
        Seconds | None,
        Field(description="Time from its submission in which it should be done: spot nodes are used no longer than "
              "that allows."),
        Notation("duration", f"{DURATION_WORDS}, at most ten years", "2d"),
    ] = None  # fmt: skip
    off_peak: Annotated[
        bool,
        Field(description="Whether it may wait for the quiet hours of its pool, if the pool has any."),
        Notation("flag", "`true` or `false`", "true"),
    ] = False
    tags: Annotated[
        dict[TagName, Text],
        Field(description="Names and values of your own, to find the job by. Values are text exactly as written."),
        Notation("mapping", "a mapping of names to text", "{task: pretrain}",
                item="a name of letters, digits, `.`, `_`, `/` and `-`, and text for it"),
    ] = {}  # fmt: skip
    preflight: Annotated[
        Preflight | None,
        Field(
            description="What its preflight holds it to. With `rung` it is a rung of preflight: it needs no "
            "certificates, and runs an hour at most."
        ),
        Notation("section", "a mapping such as `{throughput: 120000}`", "{throughput: 120000}", shorthand="rung"),
    ] = None
    image: Annotated[
        Annotated[str, Field(pattern=r"^[^\s\x00]+$", max_length=1000)] | None,
        Field(description="Container image, where the engine runs containers. The engine's unless given."),
        Notation("text", "the name of an image", "registry.example.com/train:1.4", ("container_image",)),
    ] = None
    slurm: Annotated[
        SlurmSection | None,
        Field(description="What only Slurm has a name for."),
        Notation("section", "a mapping such as `{qos: high}`", "{qos: high}"),
    ] = None
    ray: Annotated[
        RaySection | None,
        Field(description="What only Ray has a name for."),
        Notation("section", "a mapping such as `{driver: true}`", "{driver: true}"),
    ] = None
    kubernetes: Annotated[
        KubernetesSection | None,
        Field(description="What only Kubernetes has a name for."),
        Notation("section", "a mapping such as `{queue: team-a}`", "{queue: team-a}", ("k8s",)),
    ] = None
    sagemaker: Annotated[
        SageMakerSection | None,
        Field(description="What `muster render --engine sagemaker` needs."),
        Notation("section", "a mapping such as `{region: eu-west-1}`", "{region: eu-west-1}"),
    ] = None
    vertex: Annotated[
        VertexSection | None,
        Field(description="What `muster render --engine vertex` needs."),
        Notation("section", "a mapping such as `{location: europe-west4}`", "{location: europe-west4}"),
    ] = None
    azureml: Annotated[
        AzureMLSection | None,
        Field(description="What `muster render --engine azureml` needs."),
        Notation("section", "a mapping such as `{workspace: research}`", "{workspace: research}"),
    ] = None


def section(spec: JobSpec, kind: str) -> dict[str, Any]:
    """The job's section for one kind of engine, without values that are defaults; empty when there is none."""
    said = getattr(spec, kind) if kind in SECTIONS else None
    return {} if said is None else said.model_dump(mode="json", exclude_defaults=True)


def sections(spec: JobSpec) -> dict[str, dict[str, Any]]:
    """The sections of all kinds of engines that are not empty."""
    return {kind: said for kind in SECTIONS if (said := section(spec, kind))}


def ranks_per_node(spec: JobSpec) -> int:
    return spec.nproc or spec.resources.accelerators or 1


def ask(spec: JobSpec) -> Resources:
    """What one worker takes from its node."""
    wants = spec.resources
    milli_cpus = 1000 * ranks_per_node(spec) if wants.cpus is None else max(1, round(wants.cpus * 1000))
    kind = (wants.accelerator or units.ANY_ACCELERATOR) if wants.accelerators else ""
    size = wants.accelerator_memory or 0 if kind else 0
    return _resources(milli_cpus, wants.memory or 0, wants.accelerators, kind, wants.share if kind else 1000, size)


# Most jobs ask for one of a few amounts; one object for each is found faster in the indexes by resources.
_resources = lru_cache(maxsize=4096)(Resources)


def fewest_nodes(spec: JobSpec) -> int:
    return spec.min_nodes or spec.num_nodes


def work_class(spec: JobSpec) -> WorkClass:
    """The class of work that decides which target wait applies to the job."""
    named = _CLASSES.get(spec.kind)
    if named is not None:
        return named
    return "distributed" if spec.num_nodes > 1 else "single"


_CLASSES: Final[dict[str, WorkClass]] = {"eval": "evaluation", "sweep": "trial", "session": "session"}


def dump_job(spec: JobSpec) -> str:
    """The text of a job file with what differs from the defaults, in human units; `parse_job` reverses it."""
    return to_yaml(spec)
