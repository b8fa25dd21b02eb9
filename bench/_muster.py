"""Muster's controller over nodes that are not there, as `_slurm.py` has Slurm's: it allocates for real and launches
nothing. Gangs run until they are told to end."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterable
from itertools import count

from muster.control.loop import Controller
from muster.control.submit import Submission, submit
from muster.core.entities.pool import PoolSet
from muster.core.entities.project import ProjectSet
from muster.core.entities.queue import QueueSet
from muster.core.entities.rules_in_force import RulesSet
from muster.core.event import Event
from muster.core.resources import Resources
from muster.core.rules import Preemption, QueueRules, Rules
from muster.core.spec import JobSpec, WorkerResources
from muster.core.state import State
from muster.engines.base import NodeInfo
from muster.engines.sim import SimEngine
from muster.sched.schedule import schedule
from muster.store.base import Entry
from muster.store.direct import DirectCommit, LiveStore
from muster.wire import WorkerExit

# As Slurm is set up here: in the order of submission, with a place kept for the first, and nobody is interrupted.
RULES = Rules(
    estimates="declared",
    preemption=Preemption(enabled=False),
    defaults=QueueRules(order="fifo", backfill="easy", ageing=None, overdue=None),
)
CPUS, CPUS_ASKED = 64, 8


class MusterController:
    """A virtual clock that stands still but when it is moved: nothing here depends on how long anything runs."""

    def __init__(self, nodes: int, gpus: int = 8, rack: int = 32) -> None:
        self.nodes, self.gpus, self.now = nodes, gpus, 1000.0
        made = [self._node(f"n{number}", f"leaf{number // rack}") for number in range(nodes)]
        self.engine = SimEngine(made, self._clock, audit_every=1e9)
        self.store = LiveStore()
        self._commit = DirectCommit(self.store, lambda events: self.controller.on_commit(events))
        self.controller = Controller(self._commit, self.engine, _Clock(self), lambda job, attempt: "", lambda: True)
        self._specs: dict[tuple[int, int, int], JobSpec] = {}

    def open(self) -> None:
        self.store.open()
        opening = [
            Event(ProjectSet(name="default"), self.now),
            Event(QueueSet(name="default", project="default"), self.now),
            Event(PoolSet(name="main", engine="sim", accelerator="H100"), self.now),
            Event(RulesSet(rules=RULES, text=""), self.now),
        ]
        self._commit.run([lambda state: Entry(opening)])
        self.controller.adopt()
        self.settle()

    def submit_many(self, arrays: Iterable[tuple[int, int, int, int]]) -> int:
        """Gangs given as (count, nodes, gpus, minutes), each a job of its own. How many there are; none starts yet."""
        total = 0
        for times, nodes, gpus, minutes in arrays:
            submission = Submission(self._spec(nodes, gpus, minutes), "bench")
            results = self._commit.each(
                [submit(self.store, submission, self.now, False, whole=True, admitted=n > 0) for n in range(times)]
            )
            assert not any(isinstance(found, Exception) for found in results), results[0]
            total += times
        return total

    def settle(self) -> int:
        """Ticks until there is nothing more to do; how many ticks it took."""
        for ticks in count(1):
            self.controller.tick()
            if not self.controller.pending:
                return ticks
        raise AssertionError

    def end(self, job: str) -> None:
        """The engine is told that the whole gang is done."""
        attempt = self.state.jobs[job].attempt
        assert attempt is not None
        self.engine.end(job, attempt.number, WorkerExit("succeeded", "completed", "", self.now))

    def join_node(self) -> None:
        self.engine.join(self._node("extra", "leaf-extra"))
        self.settle()

    def fresh_round(self) -> float:
        """Seconds of a round that looks at every node and job anew, as after a restart."""
        gc.collect()
        begun = time.perf_counter()
        plan = schedule(self.state, self.now)
        spent = time.perf_counter() - begun
        assert not plan.starts
        return spent

    @property
    def state(self) -> State:
        return self.store.state()

    def _spec(self, nodes: int, gpus: int, minutes: int) -> JobSpec:
        key = (nodes, gpus, minutes)
        if key not in self._specs:
            resources = WorkerResources(accelerator="H100", accelerators=gpus, cpus=CPUS_ASKED)
            self._specs[key] = JobSpec(
                name="gang", run="true", num_nodes=nodes, resources=resources, max_duration=60.0 * minutes
            )
        return self._specs[key]

    def _node(self, name: str, rack: str) -> NodeInfo:
        return NodeInfo(name, "main", Resources(CPUS * 1000, 256 * 10**9, self.gpus, "H100"), {"rack": rack})

    def _clock(self) -> float:
        return self.now


class _Clock:
    def __init__(self, owner: MusterController) -> None:
        self._owner = owner

    def now(self) -> float:
        return self._owner.now
