"""The engine seam: what the controller asks of whatever runs the workers, and what it hears back.

`Engine` is what every engine has. What only some can do stands in small protocols of its own below it; `abilities`
says in words which of them an engine has.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol, runtime_checkable

from muster.core.entities import NodeRole
from muster.core.errors import Problem
from muster.core.resources import Resources
from muster.core.seat import Seat as Seat
from muster.wire import WorkerExit

if TYPE_CHECKING:  # nodes have what this file needs, but not what reads job files
    from muster.core.spec import JobSpec

# `pending`: the engine has it in a queue of its own and says itself when it starts.
# `lost`: it was started, it is gone, and it left no word of how it ended.
WorkerStatus = Literal["pending", "starting", "running", "ended", "lost"]
Health = Literal["healthy", "suspect", "draining"]


@dataclass(frozen=True, slots=True)
class NodeInfo:
    """A node as the engine sees it now. A node that it no longer lists has gone."""

    name: str
    pool: str
    resources: Resources
    labels: Mapping[str, str] = field(default_factory=dict)
    # A `node` is given away by Muster itself; a `slot` is a place in the queue of an engine that chooses the machines,
    # as large as one of them; a `machine` is one of those, to be looked at and drained.
    role: NodeRole = "node"
    health: Health = "healthy"  # as the engine sees it; what people set through Muster stands above it
    why: str = ""  # behind a health that is not healthy
    used: Resources | None = None  # of a machine: what all who use it hold, where the engine says so
    engine: str = ""  # which of several engines has it
    machines: int = 0  # of a slot: how many machines its pool has, or may come to have


@dataclass(slots=True)  # not frozen, nor is the report: a simulation makes millions of them
class GangLaunch:
    """One attempt of one job, whole. Launching it twice is the same as launching it once."""

    job: str
    attempt: int
    seats: Sequence[Seat]
    nproc: int
    run: str
    workdir: str
    envs: Mapping[str, str]
    secrets: Sequence[str]
    token: str
    checkpoint_keep: int
    checkpoint_every: float | None
    max_duration: float | None
    memory: int | None
    stop_grace: float
    # What only some engines have a use for.
    name: str = ""  # what people call the job
    project: str = ""
    user: str = ""
    pool: str = ""
    priority: int = 50
    ask: Resources = field(default_factory=Resources)  # of each worker
    require: str = ""  # level of topology that all workers share
    prefer: str = ""
    # What the job file says to this kind of engine; the controller names every kind: {"slurm": {...}, "ray": {...}}.
    options: Mapping[str, Any] = field(default_factory=dict)
    image: str = ""  # of the container, where there are any
    code: str = ""  # digest of the snapshot of `workdir`, for nodes that don't have the folder
    log_limit: int | None = None  # bytes of output kept of each rank; None: as many as the server says
    trusted: bool = False  # an administrator submitted it: it may do what the server may


@dataclass(slots=True)
class WorkerReport:
    """What the engine knows of one worker; `exit` is there when it has ended and left word."""

    job: str
    attempt: int
    worker: int
    status: WorkerStatus
    exit: WorkerExit | None = None
    node: str = ""  # the machine that it is on, where the engine chose it
    sure: bool = False  # no launcher is left that could tell more: the exit is taken at once


@runtime_checkable
class Engine(Protocol):
    """Idempotent by (job, attempt); a finished attempt is reported until it is told to forget it."""

    name: str
    # Seconds for which a worker's own last word, with its last output, is waited for before the engine's is taken.
    patience: float

    def nodes(self) -> Sequence[NodeInfo]:
        """The nodes that exist now."""

    def launch(self, gang: GangLaunch) -> None:
        """Starts whatever of the gang is not started yet. Raises EngineError when it can't ever."""

    def stop(self, job: str, attempt: int, grace: float, reason: str) -> None:
        """Asks every worker to save and leave within `grace` seconds, and kills what is left then. Returns at once."""

    def poll(self) -> Sequence[WorkerReport]:
        """Every worker that it knows and has not been told to forget."""

    def forget(self, job: str, attempt: int) -> None:
        """Drops what it keeps of a finished attempt; nothing happens if it knows none."""

    def on_change(self, wake: Callable[[], None]) -> None:
        """Calls `wake`, from any thread, when a poll would say something new."""

    def close(self) -> None:
        """Lets go of what belongs to this process; the workers go on."""


class Member(Engine, Protocol):
    """An engine of a server."""

    def start(self) -> None:
        """Gets ready; returns at once, whether the engine can be reached or not."""


@runtime_checkable
class Incremental(Protocol):
    """What an engine has that hears of changes by itself, so that a tick costs what changed and not what exists."""

    # Seconds after which everything is looked at all the same, in case that something was missed.
    audit_every: float

    def changes(self) -> Sequence[WorkerReport] | None:
        """Workers whose status is new since the last call, every worker of a gang that was launched among them; None
        when it can't say: then it is polled."""

    def nodes_changed(self) -> bool:
        """Whether `nodes` has something new to say since it was last called."""


@dataclass(frozen=True, slots=True)
class PoolInfo:
    """A pool that exists, with or without nodes."""

    engine: str
    away: str = ""  # what keeps its engine from being reached; "" when it can be


@runtime_checkable
class Several(Protocol):
    """Engines behind one, some of which may not have been heard of yet."""

    def heard(self, engine: str) -> bool:
        """Whether its nodes and workers are known: what it does not name is gone then. True of one that is no more."""

    def pools(self) -> Mapping[str, PoolInfo]:
        """Every pool that was ever heard of."""

    def nodes_changed(self) -> bool:
        """Whether `nodes` or `pools` has something new to say since they were last called."""


@dataclass(frozen=True, slots=True)
class Wait:
    """What a gang waits for in the engine's own queue."""

    job: str
    attempt: int
    code: str  # the engine's own word, such as Slurm's `Priority`
    message: str  # for people, a sentence
    starts_at: float | None = None  # the engine's estimate, where it makes one
    hint: str = ""  # what people can do about it, where they can


@runtime_checkable
class Queueing(Protocol):
    """An engine with a queue of its own: it chooses the machines, and says what a gang waits for."""

    def waits(self) -> Sequence[Wait]:
        """One for every gang that is pending, as far as it is known by now. Asks nobody: costs nothing."""


@runtime_checkable
class Knowing(Protocol):
    """An engine that may know better than a worker why it was told to leave."""

    def cause(self, job: str, attempt: int, worker: int) -> tuple[str, str] | None:
        """A reason's code and a detail, from what it has heard already; None when it has heard nothing."""


@runtime_checkable
class Draining(Protocol):
    def drain(self, node: str, why: str) -> None:
        """Has the engine start nothing there. Raises EngineError when it refuses."""

    def undrain(self, node: str) -> None:
        """Lets it start work there again."""


@runtime_checkable
class Growing(Protocol):
    """An engine that can have more nodes made when somebody waits."""

    def want(self, waiting: Sequence[tuple[str, Resources, int]]) -> None:
        """Who waits now: pool, what each worker takes, how many workers. Called when that changes; nothing is lost if
        it is called twice."""

    def most(self) -> Mapping[str, tuple[Resources, int]]:
        """Pool → what a node of it is like that does not exist yet, and how many nodes there may be in all."""


@runtime_checkable
class Judging(Protocol):
    """An engine whose settings say what job files may ask of it."""

    def objections(self, spec: JobSpec, pool: str) -> Sequence[Problem]:
        """What a job asks for and may not have there, in a pool as the engine calls it. Asks nobody."""


@dataclass(frozen=True, slots=True)
class Usage:
    """What the engine's own books say that an attempt used."""

    job: str
    attempt: int
    state: str  # in the engine's words
    nodes: tuple[str, ...]
    started_at: float | None
    ended_at: float | None
    accelerator_seconds: float
    cpu_seconds: float
    about: Mapping[str, Any] = field(default_factory=dict)


@runtime_checkable
class Accounting(Protocol):
    def usage(self, since: float) -> Iterable[Usage]:
        """What it has on record of attempts of this Muster since then. May take seconds."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at, for `muster doctor --engine`."""

    status: Literal["ok", "warn", "fail"]
    name: str
    detail: str
    hint: str = ""


@dataclass(frozen=True, slots=True)
class Condition:
    """How the engine itself is doing."""

    ok: bool
    since: float
    detail: str = ""  # what is wrong, or what it is connected to
    hint: str = ""
    trouble: str = ""  # of one that answers: what it can't do for its gangs, such as for want of a right


@runtime_checkable
class Diagnosing(Protocol):
    """What every engine has that is not this machine."""

    kind: str  # ray, slurm, kubernetes
    abilities: Sequence[str]  # what it can do, in a few words each

    def condition(self) -> Condition:
        """As last seen; asks nobody."""

    def diagnose(self) -> Iterable[Finding]:
        """Looks now, one thing after the other, as far as it can be looked at."""
