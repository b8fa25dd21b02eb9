"""Small clusters with rules, work that runs and work that waits, for the tests of why and when."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from muster.core.entities.pool import PoolSet
from muster.core.entities.rules_in_force import RulesSet
from muster.core.event import Event
from muster.core.payload import decode
from muster.core.rules import PoolRules, QueueRules, Rules
from muster.core.state import State, apply
from muster.sched.board import Board
from muster.sched.explain import explain
from scheduler_kit import entities, job_event, node_event

STILL = QueueRules(order="fifo", preempts=False, preemptible=False)


@dataclass
class ClusterState:
    """One or more pools of nodes with two accelerators and eight CPUs each. Time stands at `now`."""

    nodes: Sequence[str] = ("n0", "n1")
    rules: Rules = field(default_factory=lambda: Rules(defaults=STILL))
    pools: dict[str, Sequence[str]] = field(default_factory=dict)  # beside `main`: name → nodes
    queues: int = 1
    now: float = 100.0
    state: State = field(default_factory=State)
    number: int = 0

    def __post_init__(self) -> None:
        for event in entities(self.queues):
            self.apply(event)
        for pool, names in {"main": self.nodes, **self.pools}.items():
            self.apply(Event(PoolSet(name=pool, spot=pool.endswith("spot")), 1.0))
            for name in names:
                self.apply(node_event(name, 2, 8, pool))
        self.apply(Event(RulesSet(rules=self.rules, text=""), 1.0))

    def apply(self, event: Event) -> None:
        apply(self.state, event.stamped(self.state.version + 1))

    def job(self, **spec: Any) -> str:
        """Submits a job."""
        self.number += 1
        event = job_event(self.number, **spec)
        event.time = self.now
        self.apply(event)
        return event.job

    def run(self, *nodes: str, devices: Sequence[int] = (0, 1), **spec: Any) -> str:
        """A gang that runs there."""
        name = self.job(num_nodes=len(nodes), gpus=len(devices), **spec)
        seats = [{"node": node, "devices": list(devices)} for node in nodes]
        self.tell("attempt.planned", name, seats=seats)
        self.tell("attempt.running", name)
        return name

    def tell(self, kind: str, job: str, **data: Any) -> None:
        self.apply(Event(decode(kind, data), self.now, job=job, attempt=1))

    def codes(self, job: str, board: Board | None = None) -> list[str]:
        return [found.code for found in explain(self.state, self.state.jobs[job], self.now, board)]

    def why(self, job: str) -> Any:
        """The dominant reason."""
        return explain(self.state, self.state.jobs[job], self.now)[0]


def ruled(pools: dict[str, PoolRules] | None = None, rules: dict[str, Any] | None = None, **queue: Any) -> Rules:
    """Rules with these fields for every queue."""
    defaults = STILL.model_copy(update=queue)
    return Rules(defaults=defaults, pools=pools or {}, **(rules or {}))
