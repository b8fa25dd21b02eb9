"""What differs between Ray, Slurm and Kubernetes as engines: the seam below `muster.engines.remote`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from muster.core.resources import Resources
from muster.engines.base import Finding, GangLaunch, NodeInfo, Usage, Wait, WorkerReport
from muster.engines.unseen import Held, Key, Order


@dataclass(slots=True)
class Look:
    """All that the cluster says of this Muster's gangs, and of its nodes where it was time to ask."""

    workers: Sequence[WorkerReport]
    waits: Sequence[Wait] = ()
    nodes: Sequence[NodeInfo] | None = None  # None: as before
    freed: bool = False  # something has gone that may have held others back
    trouble: str = ""  # what it can't do there, though the cluster answers


class Adapter(Protocol):
    """One cluster. Called by one thread, one call at a time, but for `cause`, `diagnose` and `close`.

    Every call may raise EngineError with a word for people when the cluster as a whole does not answer: it is made
    again later. What concerns one gang concerns no other. Everything is idempotent by (job, attempt).
    """

    kind: str
    abilities: Sequence[str]
    look_every: float  # seconds between two looks that nothing asked for

    def open(self, changed: Callable[[], None]) -> str:
        """Connects, or makes sure that it is connected; says to what. `changed` asks for a look, from any thread, and
        tells that a cluster that was away answers again."""

    def look(self, nodes: bool) -> Look:
        """One call, however much runs there. `nodes`: whether they are asked for as well."""

    def launch(self, gangs: Sequence[GangLaunch], wanted: Callable[[Key], bool]) -> Mapping[Key, str | Held]:
        """Hands gangs over that `look` has not named. Named are those that it refuses for good, each with the word for
        it, and those that the cluster does not take yet. Nothing is made for a gang that is no longer `wanted`."""

    def stop(self, orders: Sequence[Order]) -> None:
        """Passes the orders on."""

    def forget(self, attempts: Sequence[Key]) -> None:
        """Removes whatever is there of these, seen or not, also where it was handed over in part only."""

    def drain(self, node: str, why: str) -> None: ...

    def undrain(self, node: str) -> None: ...

    def want(self, waiting: Sequence[tuple[str, Resources, int]]) -> None: ...

    def most(self) -> Mapping[str, tuple[Resources, int]]: ...

    def cause(self, job: str, attempt: int, worker: int) -> tuple[str, str] | None: ...

    def usage(self, since: float) -> Iterable[Usage]: ...

    def diagnose(self) -> Iterable[Finding]:
        """Must work without `open`: it may be what does not work."""

    def close(self) -> None: ...
