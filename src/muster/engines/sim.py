"""An engine without processes: gangs last as long as they are told to, on a clock that somebody else moves.

The simulator runs the real controller on it, and so do the controller's own tests.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from muster.core.errors import EngineError
from muster.engines.base import GangLaunch, NodeInfo, WorkerReport
from muster.wire import WorkerExit

Key = tuple[str, int]


@dataclass(slots=True)
class _Gang:
    launch: GangLaunch
    exits: dict[int, WorkerExit] = field(default_factory=dict)


@dataclass(slots=True)
class SimEngine:
    """`refuse` may raise EngineError for a launch, as a real engine would."""

    node_list: list[NodeInfo]
    now: Callable[[], float]
    refuse: Callable[[GangLaunch], None] | None = None
    name: str = "sim"
    patience: float = 0.0
    launches: list[Key] = field(default_factory=list)  # every gang that really started, in order
    _gangs: dict[Key, _Gang] = field(default_factory=dict)
    _forgotten: set[Key] = field(default_factory=set)
    _wake: Callable[[], None] | None = None

    def start(self) -> None:
        """There is nothing to start."""

    def nodes(self) -> Sequence[NodeInfo]:
        return self.node_list

    def launch(self, gang: GangLaunch) -> None:
        key = (gang.job, gang.attempt)
        if key in self._gangs or key in self._forgotten:
            return
        if self.refuse is not None:
            self.refuse(gang)
        missing = {seat.node for seat in gang.seats} - {node.name for node in self.node_list}
        if missing:
            raise EngineError(f"There is no node {sorted(missing)[0]}.")
        self._gangs[key] = _Gang(gang)
        self.launches.append(key)
        self._changed()

    def stop(self, job: str, attempt: int, grace: float, reason: str) -> None:
        gang = self._gangs.get((job, attempt))
        if gang is not None:
            for worker in range(len(gang.launch.seats)):
                gang.exits.setdefault(worker, WorkerExit("stopped", reason, "", self.now()))
            self._changed()

    def end(self, job: str, attempt: int, exit_: WorkerExit, worker: int | None = None) -> None:
        """Ends one worker of a gang, or all of them."""
        gang = self._gangs[(job, attempt)]
        for index in range(len(gang.launch.seats)) if worker is None else [worker]:
            gang.exits.setdefault(index, exit_)
        self._changed()

    def poll(self) -> Sequence[WorkerReport]:
        return [
            WorkerReport(job, attempt, worker, "ended" if worker in gang.exits else "running", gang.exits.get(worker))
            for (job, attempt), gang in self._gangs.items()
            for worker in range(len(gang.launch.seats))
        ]

    def forget(self, job: str, attempt: int) -> None:
        gang = self._gangs.get((job, attempt))
        if gang is not None and len(gang.exits) == len(gang.launch.seats):
            del self._gangs[(job, attempt)]
            self._forgotten.add((job, attempt))

    def on_change(self, wake: Callable[[], None]) -> None:
        self._wake = wake

    def close(self) -> None:
        self._wake = None

    def _changed(self) -> None:
        if self._wake is not None:
            self._wake()
