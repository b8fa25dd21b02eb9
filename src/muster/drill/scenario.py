"""The shape of a scenario: what it breaks, what must hold, where it applies, and how it is injected."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from muster.client import Client
from muster.core.spec import JobSpec, ranks_per_node
from muster.drill.inject import NotInjected, inject
from muster.drill.watch import Watch

if TYPE_CHECKING:
    from muster.drill.proxy import StoreProxy
    from muster.drill.read_files import ReadFiles

ENDS: Final = ("worker.ended", "attempt.ended")  # a launcher or the engine says that something is gone


class OwnServer(Protocol):
    """A server that was started for the drill, and may be broken by it."""

    @property
    def home(self) -> Path: ...

    def kill(self) -> None:
        """As a crash would."""

    def start(self) -> None:
        """Returns when it is ready."""


@dataclass(frozen=True, slots=True)
class Setting:
    """What decides whether a scenario applies."""

    spec: JobSpec
    engine: str  # the kind of the engine
    local: bool = True  # the server is on this machine
    server: OwnServer | None = None

    @property
    def ranks(self) -> int:
        return self.spec.num_nodes * self.per_node

    @property
    def per_node(self) -> int:
        return ranks_per_node(self.spec)

    def ranks_of(self, worker: int) -> list[int]:
        return list(range(worker * self.per_node, (worker + 1) * self.per_node))


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault that was injected, at a time in seconds since 1970."""

    time: float
    text: str


@dataclass(slots=True)
class Case:
    """A running job in which a fault is injected."""

    client: Client
    job: str
    setting: Setting
    watch: Watch
    pick: Callable[[Sequence[int]], int] = field(default=lambda ranks: ranks[-1])  # which rank; a soak takes any
    proxy: StoreProxy | None = None
    reads: ReadFiles | None = None

    def rank(self) -> int:
        return self.pick(range(self.setting.ranks))

    def beside(self, rank: int, /, lasts: float = 0.0, **asked: Any) -> dict[str, Any]:
        """Injects a fault beside a rank; see `beside`."""
        return inject(self.client, self.job, rank, lasts, **asked)


def everywhere(setting: Setting) -> str:
    return ""


@dataclass(frozen=True, slots=True)
class Scenario:
    """`applies` returns why it does not, or nothing. `holds` is what must hold, as a sentence."""

    name: str
    breaks: str
    holds: str
    inject: Callable[[Case], Fault]
    applies: Callable[[Setting], str] = everywhere
    restarts: bool | None = True  # whether the job must be restarted; None: it may be
    sees: tuple[str, ...] = ENDS  # the kinds of events that say so; none: nothing has to be said
    saved: int = 1  # checkpoints that there must be before
    charged: str = ""  # what its restarts must be charged to
    resumes: bool = False  # a job that has ended is resumed, as a person would
    in_proxy: bool = False  # its object store is reached through a proxy of the drill's
    sees_reads: bool = False  # the drill sees which files its Python reads, and may give it others
    causes: tuple[str, ...] = ()  # reasons, one of which the attempt must end with
    may_fail: bool = False  # to end with an error of the program's own that says what is wrong is right as well
    whole: bool = False  # the record must have every report of the undisturbed run
    change: Callable[[JobSpec], Mapping[str, Any]] | None = None  # fields of the disturbed job that are different
    soak: bool = False  # whether it may be repeated many times in one job


__all__ = ["ENDS", "Case", "Fault", "NotInjected", "OwnServer", "Scenario", "Setting", "everywhere"]
