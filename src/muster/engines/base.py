"""The engine interface: what the controller asks of an engine, and what the engine reports back.

Every engine implements `Engine`. Optional features are small separate protocols below it; `abilities` lists in words
which of them an engine has.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol, runtime_checkable

from muster.api.words import NodeRole
from muster.core.errors import Problem
from muster.core.resources import Resources
from muster.core.seat import Seat as Seat
from muster.wire import Start, WorkerExit

if TYPE_CHECKING:  # nodes can import everything this file needs, but not the job file parser
    from muster.core.spec import JobSpec

# `pending`: it waits in the engine's own queue, and the engine reports when it starts.
# `lost`: it was started, has gone, and left no exit status.
WorkerStatus = Literal["pending", "starting", "running", "ended", "lost"]
Health = Literal["healthy", "suspect", "draining"]


@dataclass(frozen=True, slots=True)
class NodeInfo:
    """A node as the engine sees it now. A node that the engine no longer lists has gone."""

    name: str
    pool: str
    resources: Resources
    labels: Mapping[str, str] = field(default_factory=dict)
    # `node`: Muster itself assigns workers to it. `slot`: a place in the queue of an engine that chooses the machines
    # itself, as large as one machine. `machine`: one of those machines, which can be shown and drained.
    role: NodeRole = "node"
    health: Health = "healthy"  # as the engine sees it; what people set through Muster takes precedence
    why: str = ""  # why the node is not healthy
    used: Resources | None = None  # machines only: what all its users together hold, if the engine reports it
    engine: str = ""  # the engine that the node belongs to, where there are several
    machines: int = 0  # slots only: how many machines the pool has, or may grow to
    also: tuple[str, ...] = ()  # machines only: further pools that the machine belongs to


@dataclass(slots=True)  # not frozen, and neither is WorkerReport: a simulation creates millions of them
class GangLaunch:
    """One attempt of a job, with all its workers. Launching it twice has the same effect as launching it once."""

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
    # The fields from here on are used by some engines only.
    name: str = ""  # the job's name
    project: str = ""
    user: str = ""
    pool: str = ""
    priority: int = 50
    ask: Resources = field(default_factory=Resources)  # for each worker
    require: str = ""  # topology level that all workers must share
    prefer: str = ""
    # The job file's options for this kind of engine. The controller passes all kinds: {"slurm": {...}, "ray": {...}}.
    options: Mapping[str, Any] = field(default_factory=dict)
    image: str = ""  # container image, for engines that use containers
    code: str = ""  # digest of the snapshot of `workdir`, for nodes that don't have the folder
    log_limit: int | None = None  # bytes of output kept per rank; None: the server's default
    trusted: bool = False  # submitted by an administrator: it has the server's rights
    check_nodes: Sequence[str] = ()  # nodes that are checked before ranks start there, because they failed lately
    spot: bool = False  # the machines of its pool can be taken away
    warm: bool = False  # the next attempt may start from processes that are kept for it
    start: Start | None = None  # the checkpoint of another run that it takes first


@dataclass(slots=True)
class WorkerReport:
    """The engine's view of one worker. `exit` is set when the worker has ended and left an exit status."""

    job: str
    attempt: int
    worker: int
    status: WorkerStatus
    exit: WorkerExit | None = None
    node: str = ""  # the machine that it runs on, if the engine chose it
    sure: bool = False  # no launcher is left that could report more: the exit is accepted at once
    frozen: bool = False  # its launcher's process is stopped by a signal, as far as the engine can see


@runtime_checkable
class Engine(Protocol):
    """What every engine implements. Idempotent by (job, attempt). A finished attempt is reported until `forget`."""

    name: str
    # Seconds to wait for a worker's own final report, with its last output, before the engine's report is used instead.
    patience: float

    def nodes(self) -> Sequence[NodeInfo]:
        """The nodes that exist now."""

    def launch(self, gang: GangLaunch) -> None:
        """Starts all workers of the gang that are not started yet.
        Raises EngineError if the gang can never be started."""

    def stop(self, job: str, attempt: int, grace: float, reason: str) -> None:
        """Asks every worker to save and exit within `grace` seconds, then kills what is left. Returns at once."""

    def poll(self) -> Sequence[WorkerReport]:
        """Reports every worker that the engine knows and was not told to forget."""

    def forget(self, job: str, attempt: int) -> None:
        """Drops what the engine keeps about a finished attempt. Does nothing for an unknown attempt."""

    def on_change(self, wake: Callable[[], None]) -> None:
        """Registers `wake`, which the engine calls, from any thread, when a poll would return something new."""

    def close(self) -> None:
        """Releases what belongs to this process; the workers keep running."""


class Member(Engine, Protocol):
    """An engine that belongs to a server."""

    def start(self) -> None:
        """Gets ready; returns at once, whether or not the engine can be reached."""


@runtime_checkable
class Incremental(Protocol):
    """An engine that is notified of changes, so that a tick costs as much as what changed and not as what exists."""

    # Seconds between two full polls, in case a change was missed.
    audit_every: float

    def changes(self) -> Sequence[WorkerReport] | None:
        """Workers whose status is new since the last call, including every worker of a gang launched since then.
        None when the engine can't say; then it is polled."""

    def nodes_changed(self) -> bool:
        """Whether `nodes` would return something new since it was last called."""


@runtime_checkable
class Keeping(Protocol):
    """An engine that keeps something of a job from one attempt to the next."""

    def kept(self) -> Collection[str]:
        """The jobs of which something is kept. Costs nothing."""

    def release(self, job: str) -> None:
        """Drops it: the job is over."""


@dataclass(frozen=True, slots=True)
class PoolInfo:
    """A pool that exists, with or without nodes."""

    engine: str
    away: str = ""  # why its engine can't be reached; "" when it can


@runtime_checkable
class Several(Protocol):
    """Several engines behind one interface, some of which may not have answered yet."""

    def has_reported(self, engine: str) -> bool:
        """Whether the engine's nodes and workers are known, so that what it does not list is gone.
        True for an engine that no longer exists."""

    def pools(self) -> Mapping[str, PoolInfo]:
        """Every pool that was ever seen."""

    def nodes_changed(self) -> bool:
        """Whether `nodes` or `pools` would return something new since they were last called."""


@dataclass(frozen=True, slots=True)
class Wait:
    """Why a gang waits in the engine's own queue."""

    job: str
    attempt: int
    code: str  # the engine's own term, such as Slurm's `Priority`
    message: str  # a readable sentence
    starts_at: float | None = None  # the engine's estimate, if it makes one
    hint: str = ""  # what the user can do about it, if anything


@runtime_checkable
class Queueing(Protocol):
    """An engine with its own queue: it chooses the machines and reports why a gang waits."""

    def waits(self) -> Sequence[Wait]:
        """One entry for every pending gang, as far as known. Returns cached data, so it costs nothing."""


@runtime_checkable
class CauseReporting(Protocol):
    """An engine that may know better than a worker why the worker was told to exit."""

    def cause(self, job: str, attempt: int, worker: int) -> tuple[str, str] | None:
        """A reason code and a detail, from what is already known; None when nothing is known."""


@runtime_checkable
class Draining(Protocol):
    def drain(self, node: str, why: str) -> None:
        """Tells the engine to start nothing on the node. Raises EngineError when the engine refuses."""

    def undrain(self, node: str) -> None:
        """Allows the engine to start work on the node again."""


@runtime_checkable
class NodeChecking(Protocol):
    def check_node(self, node: str, shared: bool) -> Sequence[Mapping[str, Any]] | None:
        """Runs the checks of `muster.runtime.node_checks` on the node now, and returns the findings. It takes some
        seconds, in a cluster's queue up to `muster.engines.node_check.LONGEST`. Any thread may call it.
        `shared`: jobs run there. Raises EngineError if it can't; None: only before the next start there."""


@runtime_checkable
class Growing(Protocol):
    """An engine that can add nodes when jobs wait."""

    def want(self, waiting: Sequence[tuple[str, Resources, int]]) -> None:
        """Tells the engine what waits now: pool, resources per worker, number of workers.
        Called when that changes; calling it twice does no harm."""

    def most(self) -> Mapping[str, tuple[Resources, int]]:
        """Pool → the resources of a node that the pool could add, and the maximum number of nodes in total."""


@runtime_checkable
class SpecChecking(Protocol):
    """An engine whose settings restrict what job files may ask of it."""

    def objections(self, spec: JobSpec, pool: str) -> Sequence[Problem]:
        """What a job asks for and may not have in the pool, which is given by the engine's own name.
        Makes no request."""


@dataclass(frozen=True, slots=True)
class Usage:
    """What an attempt used, according to the engine's own accounting."""

    job: str
    attempt: int
    state: str  # the engine's own term
    nodes: tuple[str, ...]
    started_at: float | None
    ended_at: float | None
    accelerator_seconds: float
    cpu_seconds: float
    about: Mapping[str, Any] = field(default_factory=dict)


@runtime_checkable
class Accounting(Protocol):
    def usage(self, since: float) -> Iterable[Usage]:
        """The accounting records of this Muster's attempts since then. May take seconds."""


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check of `muster doctor --engine`."""

    status: Literal["ok", "warn", "fail"]
    name: str
    detail: str
    hint: str = ""


@dataclass(frozen=True, slots=True)
class Condition:
    """Whether the engine can be reached, and what is wrong with it."""

    ok: bool
    since: float
    detail: str = ""  # what is wrong, or what the engine is connected to
    hint: str = ""
    trouble: str = ""  # the engine answers, but can't do this for its gangs, such as for a missing right


@runtime_checkable
class Diagnosing(Protocol):
    """What every engine implements except the local one."""

    kind: str  # ray, slurm, kubernetes
    abilities: Sequence[str]  # what it can do, in a few words each

    def condition(self) -> Condition:
        """The condition as last seen; makes no request."""

    def diagnose(self) -> Iterable[Finding]:
        """Runs the checks now, one after the other, as far as they can be run."""
