"""The Slurm data that Muster uses, and the `Client` protocol for both ways to reach Slurm (tools and REST)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from muster.core.errors import EngineError

PENDING: Final = frozenset({"PENDING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "SPECIAL_EXIT", "RESV_DEL_HOLD"})
OVER: Final = frozenset({
    "COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "PREEMPTED", "BOOT_FAIL", "DEADLINE", "OUT_OF_MEMORY",
    "REVOKED",
})  # fmt: skip


class SlurmRefused(EngineError):
    """Slurm rejects this job for good."""


class SlurmBusy(EngineError):
    """Slurm accepts no further job of this user for now."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """Properties of the whole cluster."""

    name: str
    version: str
    max_array: int = 1001  # tasks of one array, plus one
    accounting: bool = False  # whether `sacct` returns anything


@dataclass(frozen=True, slots=True)
class JobRow:
    """One job, or one task of an array, in its current state."""

    id: str  # 123, or 123_4 for a task
    raw: str  # SLURM_JOB_ID inside the job
    state: str
    restarts: int
    reason: str
    starts_at: float | None
    nodes: tuple[str, ...]
    num_nodes: int
    comment: str


@dataclass(frozen=True, slots=True)
class MachineRow:
    name: str
    states: tuple[str, ...]  # the base state (IDLE, MIXED, ...) first, then flags such as DRAIN
    cpus: int
    memory: int  # MiB
    gres: str
    partitions: tuple[str, ...]
    reason: str = ""
    features: tuple[str, ...] = ()
    used_cpus: int = 0
    used_memory: int = 0  # MiB
    used_gpus: int = 0


@dataclass(frozen=True, slots=True)
class PartitionRow:
    name: str
    default: bool
    up: bool


@dataclass(frozen=True, slots=True)
class PastRow:
    """One run of a job in Slurm's accounting; a requeued job has several."""

    id: str
    state: str
    nodes: tuple[str, ...]
    started_at: float | None
    ended_at: float | None
    elapsed: float
    cpus: int
    gpus: int
    comment: str = ""


@dataclass(frozen=True, slots=True)
class Submission:
    """A batch job to submit. Field names are those of `sbatch`."""

    name: str
    comment: str
    partition: str
    nodes: int
    cpus: int  # per node
    script: str  # path of the script
    arguments: tuple[str, ...]
    folder: str
    output: str
    memory: int = 0  # MiB per node; 0 leaves it to Slurm
    gres: str = ""
    minutes: int | None = None
    nice: int | None = None
    signal: int = 60  # seconds before the limit
    requeue: bool = True
    exclusive: bool = False
    qos: str = ""
    account: str = ""
    constraint: str = ""
    reservation: str = ""
    dependency: str = ""
    nodelist: str = ""
    exclude: str = ""
    extra: tuple[str, ...] = ()
    array: int = 0  # number of tasks; 0: a single job
    environment: dict[str, str] = field(default_factory=dict, compare=False)

    def shape(self) -> str:
        """Equal for submissions where one waiting job can replace the other:
        everything but what differs between attempts."""
        return repr((
            self.partition, self.nodes, self.cpus, self.memory, self.gres, self.exclusive, self.qos, self.account,
            self.constraint, self.reservation, self.nodelist, self.exclude, self.extra, self.requeue, self.signal,
        ))  # fmt: skip


class SlurmClient(Protocol):
    """One way to talk to Slurm. Every call raises EngineError when it gets no answer."""

    def describe(self) -> Cluster: ...

    def jobs(self) -> list[JobRow]:
        """All of this user's jobs that Slurm still knows, in one call."""

    def machines(self) -> list[MachineRow]: ...

    def partitions(self) -> list[PartitionRow]: ...

    def submit(self, wanted: Submission) -> str:
        """Submits a job and returns its id. Raises SlurmRefused or SlurmBusy."""

    def cancel(self, ids: Sequence[str], pending: bool = False) -> None:
        """Cancels jobs. `pending`: only jobs that have not started. Jobs that have ended are ignored."""

    def signal_scripts(self, ids: Sequence[str]) -> None:
        """Sends SIGUSR1 to the batch scripts."""

    def limit(self, id: str, minutes: int) -> None:
        """Changes the time limit of a pending job."""

    def drain(self, node: str, why: str) -> None: ...

    def resume(self, node: str) -> None: ...

    def past(self, since: float, ids: Sequence[str] = ()) -> list[PastRow]:
        """Reads Slurm's accounting, for the given jobs only if any are given."""


def expand(names: str) -> tuple[str, ...]:
    """Expands Slurm's short form of a node list, such as `n[1-2,07],m3`, in its order."""
    found: list[str] = []
    for word in _split(names):
        found.extend(_expand_one(word))
    return tuple(found)


def gpus_of(gres: str) -> list[tuple[str, int]]:
    """Kind ("" if Slurm has none) and count of every GPU entry of a node's Gres, such as `gpu:h100:8(S:0-1)`."""
    found = []
    for word in re.sub(r"\([^)]*\)", "", gres).split(","):
        parts = word.strip().split(":")
        if parts[0] == "gpu":
            count = parts[-1] if len(parts) > 1 and parts[-1].isdigit() else "1"
            found.append((parts[1] if len(parts) == 3 else "", int(count)))
    return found


def count_gpus(gres: str) -> int:
    return sum(count for _, count in gpus_of(gres))


def tres(text: str) -> dict[str, int]:
    """Parses `cpu=8,mem=64G,gres/gpu=2` into numbers; memory in MiB."""
    found: dict[str, int] = {}
    for part in text.split(","):
        name, _, value = part.partition("=")
        match = re.fullmatch(r"([0-9.]+)([KMGTP]?)", value)
        if match:
            scale = {"K": 1 / 1024, "M": 1.0, "": 1.0, "G": 1024.0, "T": 1024.0**2, "P": 1024.0**3}[match[2]]
            found[name] = int(float(match[1]) * scale)
    return found


def _split(names: str) -> Iterable[str]:
    depth, word = 0, ""
    for letter in names:
        depth += (letter == "[") - (letter == "]")
        if letter == "," and depth == 0:
            yield word
            word = ""
        else:
            word += letter
    if word and word not in ("(null)", "None", "None assigned"):
        yield word


def _expand_one(word: str) -> list[str]:
    head, bracket, rest = word.partition("[")
    if not bracket:
        return [word]
    inside, _, tail = rest.partition("]")
    found: list[str] = []
    for part in inside.split(","):
        first, _, last = part.partition("-")
        for number in range(int(first), int(last or first) + 1):
            found.extend(f"{head}{number:0{len(first)}d}{end}" for end in _expand_one(tail) or [""])
    return found
