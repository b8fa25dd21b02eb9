"""An engine without processes, for simulation: gangs run for a given time, on a clock that the caller moves.

The simulator runs the real controller on it, and so do the controller's own tests.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from muster.core.errors import EngineError
from muster.engines.base import GangLaunch, NodeInfo, WorkerReport
from muster.wire import WorkerExit

Key = tuple[str, int]  # job, attempt


class Player(Protocol):
    """Decides how long the gangs run."""

    def launched(self, gang: GangLaunch) -> None:
        """Called when the gang has started."""

    def stopping(self, job: str, attempt: int, grace: float, reason: str) -> bool:
        """Called when the gang is asked to stop.
        Returns whether it takes time to exit, and then the player ends it; otherwise it ends at once."""


@dataclass(slots=True)
class _SimGang:
    launch: GangLaunch
    starting: set[int]
    exits: dict[int, WorkerExit] = field(default_factory=dict)


@dataclass(slots=True)
class SimEngine:
    """The simulated engine. `refuse` may raise EngineError for a launch, as a real engine would."""

    node_list: list[NodeInfo]
    now: Callable[[], float]
    refuse: Callable[[GangLaunch], None] | None = None
    player: Player | None = None
    name: str = "sim"
    patience: float = 0.0
    audit_every: float = 30.0
    slow: bool = False  # workers stay `starting` until `come_up`; otherwise they run at once
    remember: bool = True  # record which gangs started and which were forgotten; a million jobs would fill the memory
    launches: list[Key] = field(default_factory=list)  # every gang that really started, in order
    _gangs: dict[Key, _SimGang] = field(default_factory=dict)
    _forgotten: set[Key] = field(default_factory=set)
    _news: dict[tuple[str, int, int], None] = field(default_factory=dict)  # changed workers, in order of change
    _names: frozenset[str] = frozenset()
    _nodes_changed: bool = True
    _wake: Callable[[], None] | None = None

    def start(self) -> None:
        """Nothing to start."""

    def nodes(self) -> Sequence[NodeInfo]:
        self._nodes_changed = False
        return self.node_list

    def nodes_changed(self) -> bool:
        return self._nodes_changed

    def launch(self, gang: GangLaunch) -> None:
        key = (gang.job, gang.attempt)
        if key in self._gangs or key in self._forgotten:
            return
        if self.refuse is not None:
            self.refuse(gang)
        self._check_nodes(gang)
        self._gangs[key] = _SimGang(gang, set(range(len(gang.seats))) if self.slow else set())
        if self.remember:
            self.launches.append(key)
        for worker in range(len(gang.seats)):
            self._news[(*key, worker)] = None
        if self.player is not None:
            self.player.launched(gang)
        self._changed()

    def stop(self, job: str, attempt: int, grace: float, reason: str) -> None:
        if (job, attempt) not in self._gangs:
            return
        if self.player is None or not self.player.stopping(job, attempt, grace, reason):
            self.end(job, attempt, WorkerExit("stopped", reason, "", self.now()))

    def come_up(self, job: str, attempt: int) -> None:
        """Marks the ranks of a gang as started."""
        gang = self._gangs[(job, attempt)]
        self._news.update(dict.fromkeys((job, attempt, worker) for worker in sorted(gang.starting)))
        gang.starting.clear()
        self._changed()

    def end(self, job: str, attempt: int, exit_: WorkerExit, worker: int | None = None) -> None:
        """Ends one worker of a gang, or all of them."""
        gang = self._gangs[(job, attempt)]
        for index in range(len(gang.launch.seats)) if worker is None else [worker]:
            if index not in gang.exits:
                gang.exits[index] = exit_
                self._news[(job, attempt, index)] = None
        self._changed()

    def lose(self, node: str) -> None:
        """Removes the node; the caller must end the workers on it."""
        self.node_list[:] = [known for known in self.node_list if known.name != node]
        self._names, self._nodes_changed = frozenset(), True
        self._changed()

    def join(self, node: NodeInfo) -> None:
        self.node_list.append(node)
        self._names, self._nodes_changed = frozenset(), True
        self._changed()

    def poll(self) -> Sequence[WorkerReport]:
        return [
            _report(job, attempt, worker, gang)
            for (job, attempt), gang in self._gangs.items()
            for worker in range(len(gang.launch.seats))
        ]

    def changes(self) -> Sequence[WorkerReport] | None:
        news, self._news = self._news, {}
        return [
            _report(job, attempt, worker, gang)
            for job, attempt, worker in news
            if (gang := self._gangs.get((job, attempt))) is not None
        ]

    def forget(self, job: str, attempt: int) -> None:
        gang = self._gangs.get((job, attempt))
        if gang is not None and len(gang.exits) == len(gang.launch.seats):
            del self._gangs[(job, attempt)]
            if self.remember:
                self._forgotten.add((job, attempt))

    def on_change(self, wake: Callable[[], None]) -> None:
        self._wake = wake

    def close(self) -> None:
        self._wake = None

    def _check_nodes(self, gang: GangLaunch) -> None:
        if len(self._names) != len(self.node_list):
            self._names = frozenset(node.name for node in self.node_list)
        for seat in gang.seats:
            if seat.node not in self._names:
                raise EngineError(f"There is no node {seat.node}.")

    def _changed(self) -> None:
        if self._wake is not None:
            self._wake()


def _report(job: str, attempt: int, worker: int, gang: _SimGang) -> WorkerReport:
    exit_ = gang.exits.get(worker)
    if exit_ is not None:
        return WorkerReport(job, attempt, worker, "ended", exit_)
    return WorkerReport(job, attempt, worker, "starting" if worker in gang.starting else "running")
