"""The engine seam: what the controller asks of whatever runs the workers, and what it hears back."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol, runtime_checkable

from muster.core.job import Seat as Seat
from muster.core.resources import Resources
from muster.wire import WorkerExit

# `lost`: it was started, it is gone, and it left no word of how it ended.
WorkerStatus = Literal["starting", "running", "ended", "lost"]


@dataclass(frozen=True, slots=True)
class NodeInfo:
    """A node as the engine sees it now. A node that it no longer lists has gone."""

    name: str
    pool: str
    resources: Resources
    labels: Mapping[str, str] = field(default_factory=dict)
    ready: bool = True


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


@dataclass(slots=True)
class WorkerReport:
    """What the engine knows of one worker; `exit` is there when it has ended and left word."""

    job: str
    attempt: int
    worker: int
    status: WorkerStatus
    exit: WorkerExit | None = None


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
