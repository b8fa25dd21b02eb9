"""What a simulation is made of: a trace, a cluster, what-ifs, and what came out."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from muster.core.rules import Rules


@dataclass(frozen=True, slots=True)
class TraceJob:
    """One row of a trace. Times are in seconds from the start of the trace."""

    id: str
    submit: float
    duration: float  # that it ran, or would have
    nodes: int = 1
    accelerators: int = 0  # on each node
    accelerator: str = ""  # "" is any kind
    cpus: float = 0.0  # on each node
    memory: int = 0  # bytes on each node
    user: str = ""
    queue: str = ""  # virtual cluster, partition or queue; "" is the default one
    project: str = ""
    name: str = ""
    kind: Literal["train", "eval", "data", "sweep", "session"] = "train"
    priority: int = 50
    declared: float | None = None  # run time that its user had asked for
    status: str = ""

    @property
    def size(self) -> int:
        """Accelerators in all."""
        return self.nodes * self.accelerators


@dataclass(frozen=True, slots=True)
class PoolShape:
    """Nodes of one pool, all alike."""

    name: str
    nodes: int
    accelerators: int
    accelerator: str = "GPU"
    cpus: float = 1000.0
    memory: int = 2**50
    rack: int = 32  # nodes in a rack; 0 gives none the label
    spot: bool = False


@dataclass(frozen=True, slots=True)
class Cluster:
    """Pools, and which of them the jobs of a queue are bound to; a queue without an entry may use them all."""

    pools: tuple[PoolShape, ...]
    bound: dict[str, str] = field(default_factory=dict)  # queue → pool


@dataclass(frozen=True, slots=True)
class Costs:
    """What stopping, saving and failing cost."""

    restart: float = 40.0  # seconds that an attempt after the first spends before it works, up to `wide` accelerators
    restart_wide: float = 60.0  # of a gang of more
    wide: int = 8
    checkpoint_every: float | None = None  # seconds of work between saves; None: a gang that is asked to stop saves all
    checkpoint_cost: float = 0.0  # seconds that a save holds the work up
    node_failures: float = 0.0  # per node and day
    repair: float = 3600.0  # seconds that a failed node is away
    spot_interruptions: float = 0.0  # per spot node and day
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Setup:
    """One thing to try: a policy with a name on a cluster."""

    name: str
    rules: Rules
    cluster: Cluster
    costs: Costs = Costs()
    exact: bool = False  # jobs declare their true run time: an oracle, for comparison only


@dataclass(slots=True)
class JobResult:
    """What became of one job. Times as in the trace."""

    job: TraceJob
    started: float | None = None  # first
    finished: float | None = None
    held: float = 0.0  # seconds that its attempts held their nodes, restarts and lost work included
    preemptions: int = 0
    failures: int = 0
    lost: float = 0.0  # accelerator-seconds of work and restarts that were paid twice
    longest_in_quota: float = 0.0  # longest stretch that it waited although its queue was within its quota
    refused: str = ""  # why it was never accepted

    @property
    def completion(self) -> float:
        assert self.finished is not None
        return self.finished - self.job.submit

    @property
    def queueing(self) -> float:
        """Seconds that it was in the system and held nothing."""
        return self.completion - self.held


@dataclass(frozen=True, slots=True)
class Sample:
    """The cluster at one time."""

    time: float
    used: float  # accelerators
    total: float
    queued: int  # jobs
    usable: float  # share of the free accelerators that a typical gang can use
    by_queue: dict[str, float] = field(default_factory=dict)  # accelerators in use


@dataclass(slots=True)
class Result:
    """What one setup gave."""

    setup: Setup
    jobs: list[JobResult]
    samples: list[Sample] = field(default_factory=list)
    rounds: int = 0  # ticks of the controller
    events: int = 0
    wall: float = 0.0  # seconds that the simulation took
