"""The `Adapter` protocol: everything that differs between Ray, Slurm and Kubernetes.
`muster.engines.remote` calls it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from muster.core.resources import Resources
from muster.engines.base import Finding, GangLaunch, NodeInfo, Usage, Wait, WorkerReport
from muster.engines.unseen import Held, Key, Order


@dataclass(slots=True)
class Look:
    """One snapshot of a cluster: the state of this Muster's gangs and, if they were asked for, of its nodes."""

    workers: Sequence[WorkerReport]
    waits: Sequence[Wait] = ()
    nodes: Sequence[NodeInfo] | None = None  # None: unchanged
    freed: bool = False  # something has gone that may have blocked held gangs
    trouble: str = ""  # what the engine can't do there although the cluster answers


class Adapter(Protocol):
    """The connection to one cluster. One thread calls it, one call at a time, except `check_node`, `cause`, `diagnose`
    and `close`.

    Every call may raise EngineError with a readable message when the cluster as a whole does not answer; the call is
    then repeated later. A problem with one gang must not affect another gang. All calls are idempotent by (job,
    attempt).
    """

    kind: str
    abilities: Sequence[str]
    look_every: float  # seconds between two looks that nothing triggered

    def open(self, changed: Callable[[], None]) -> str:
        """Connects, or checks the connection, and returns a description of the cluster. The adapter calls `changed`,
        from any thread, to request a look and to report that a cluster that was away answers again."""

    def look(self, nodes: bool) -> Look:
        """Takes a snapshot with one call, no matter how much runs there. `nodes`: also ask for the nodes."""

    def launch(self, gangs: Sequence[GangLaunch], wanted: Callable[[Key], bool]) -> Mapping[Key, str | Held]:
        """Submits gangs that `look` has not reported. The result holds the gangs that are refused for good, each with
        the reason, and the gangs that the cluster does not take yet.
        Nothing is created for a gang that is no longer `wanted`."""

    def stop(self, orders: Sequence[Order]) -> None:
        """Passes the stop orders on to the cluster."""

    def forget(self, attempts: Sequence[Key]) -> None:
        """Removes everything of these attempts from the cluster, whether or not a look has reported them,
        also after a partial hand-over."""

    def drain(self, node: str, why: str) -> None: ...

    def undrain(self, node: str) -> None: ...

    def check_node(self, node: str, shared: bool) -> Sequence[Mapping[str, Any]] | None:
        """See `muster.engines.base.NodeChecking`."""

    def want(self, waiting: Sequence[tuple[str, Resources, int]]) -> None: ...

    def most(self) -> Mapping[str, tuple[Resources, int]]: ...

    def cause(self, job: str, attempt: int, worker: int) -> tuple[str, str] | None: ...

    def usage(self, since: float) -> Iterable[Usage]: ...

    def diagnose(self) -> Iterable[Finding]:
        """Checks the cluster. Must work without `open`, because the connection may be what is broken."""

    def close(self) -> None: ...
