"""A whole controller on a memory store and the engine without processes, with a clock that tests move by hand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from muster.control.loop import Controller
from muster.control.stragglers import Stragglers
from muster.control.submit import Submission, resume, stop, submit
from muster.core.entities.project import ProjectSet
from muster.core.entities.queue import QueueSet
from muster.core.event import Event
from muster.core.job import Job
from muster.core.parse import parse_job
from muster.core.resources import Resources
from muster.core.state import State
from muster.engines.base import NodeInfo
from muster.engines.sim import SimEngine
from muster.store.base import Entry, Store
from muster.store.commit import GroupCommit
from muster.store.memory import MemoryStore
from muster.wire import WorkerExit

OK = WorkerExit("succeeded", "completed", "", 0.0)
KILLED = WorkerExit("failed", "killed_by_signal", "rank 1 (pid 7) was killed by SIGKILL", 0.0, rank=1, signal=9)
CRASHED = WorkerExit("failed", "user_error", "ValueError: no", 0.0, rank=0, exit_code=1)
LOST = WorkerExit("failed", "launcher_lost", "", 0.0)
TIMED_OUT = WorkerExit("stopped", "max_duration", "", 0.0)


@dataclass
class HandClock:
    time: float = 1000.0

    def now(self) -> float:
        return self.time


def nodes(count: int, gpus: int = 4, cpus: int = 8) -> list[NodeInfo]:
    resources = Resources(cpus * 1000, 64 * 10**9, gpus, "H100" if gpus else "")
    return [NodeInfo(f"n{i}", "main", resources) for i in range(count)]


class Polled:
    """The same engine as one that has to be asked: it does not say what is new."""

    def __init__(self, engine: SimEngine) -> None:
        self.name, self.patience = engine.name, engine.patience
        self.nodes, self.launch, self.stop, self.poll = engine.nodes, engine.launch, engine.stop, engine.poll
        self.forget, self.on_change, self.close = engine.forget, engine.on_change, engine.close


@dataclass
class Rig:
    node_list: list[NodeInfo] = field(default_factory=lambda: nodes(2))
    store: Store = field(default_factory=MemoryStore)
    clock: HandClock = field(default_factory=HandClock)
    events: list[Event] = field(default_factory=list)
    polled: bool = False
    stragglers: Stragglers | None = None

    def __post_init__(self) -> None:
        self.engine = SimEngine(self.node_list, self.clock.now)
        self.store.open()
        self._new_controller()
        self._propose(lambda state: Entry(_entities(self.clock.now())))
        self.tick()

    def _new_controller(self) -> None:
        self.commit = GroupCommit(self.store, self._committed)
        engine = Polled(self.engine) if self.polled else self.engine
        self.controller = Controller(
            self.commit, engine, self.clock, lambda job, attempt: "token", lambda: True, stragglers=self.stragglers
        )
        self.commit.start()
        self.controller.adopt()

    def restart(self) -> None:
        """A server that was killed and started again: all that it knew in memory is gone."""
        self.commit.close()
        self.store.reload()
        self._new_controller()

    def close(self) -> None:
        self.commit.close()

    @property
    def state(self) -> State:
        return self.store.state()

    def submit(self, **spec: object) -> str:
        parsed = parse_job({"name": "job", "run": "true", **spec})
        return self._propose(submit(self.store, Submission(parsed, "ada"), self.clock.now(), local=False))[0].job

    def stop(self, job: str, grace: float | None = None) -> None:
        self._propose(stop(job, "ada", self.clock.now(), grace))

    def resume(self, job: str) -> None:
        self._propose(resume(self.store, job, "ada", self.clock.now(), local=False))

    def tell(self, *events: Event) -> None:
        """Something that happened elsewhere."""
        self._propose(lambda state: Entry(events))

    def end(self, job: str, exit_: WorkerExit = OK, worker: int | None = None) -> None:
        attempt = self.state.jobs[job].attempt
        assert attempt is not None
        self.engine.end(job, attempt.number, exit_, worker)

    def tick(self, times: int = 2, seconds: float = 0.0) -> None:
        self.clock.time += seconds
        for _ in range(times):
            self.controller.tick()

    def job(self, job: str) -> Job:
        found = self.store.job(job)
        assert found is not None
        return found

    def kinds(self, job: str) -> list[str]:
        return [e.kind for e in self.events if e.job == job]

    def _committed(self, events: Sequence[Event]) -> None:
        self.events.extend(events)
        self.controller.on_commit(events)

    def _propose(self, proposal):
        return self.commit.submit(proposal).result(timeout=180)


def _entities(now: float) -> list[Event]:
    return [
        Event(ProjectSet(name="default"), now),
        Event(QueueSet(name="default"), now),
    ]
