"""The data model of a simulation: trace jobs, the cluster, costs, setups and results."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf
from typing import Final

from muster.api.words import Kind
from muster.control.quota import UNLIMITED, Quota
from muster.core.budget_events import BudgetSet
from muster.core.prices import PriceBook
from muster.core.resources import WHOLE
from muster.core.rules import Rules
from muster.monitor.alerts.rule import RuleSet
from muster.sim.task import Task
from muster.tune.spec import StudySpec

DEFAULT: Final = "default"  # the project and the queue of jobs that name none


@dataclass(frozen=True, slots=True)
class TraceJob:
    """One row of a trace. Times are in seconds from the start of the trace."""

    id: str
    submit: float
    duration: float  # run time, real or assumed
    nodes: int = 1
    accelerators: int = 0  # on each node
    accelerator: str = ""  # "" is any kind
    cpus: float = 0.0  # on each node
    memory: int = 0  # bytes on each node
    user: str = ""
    queue: str = ""  # virtual cluster, partition or queue; "" is the default one
    project: str = ""
    name: str = ""
    kind: Kind = "train"
    priority: int = 50
    declared: float | None = None  # run time that the user had requested
    status: str = ""
    share: int = WHOLE  # thousandths of its one accelerator

    @property
    def each(self) -> float:
        """Accelerators on each node, of which a part counts as a part."""
        return self.accelerators if self.share == WHOLE else self.accelerators * self.share / WHOLE

    @property
    def size(self) -> int:
        """Accelerators of the whole job; one of which it has a part counts as one."""
        return self.nodes * self.accelerators


@dataclass(frozen=True, slots=True)
class PoolShape:
    """One pool; all its nodes are equal."""

    name: str
    nodes: int
    accelerators: int
    accelerator: str = "GPU"
    cpus: float = 1000.0
    memory: int = 2**50
    rack: int = 32  # nodes in a rack; 0: nodes have no rack label
    spot: bool = False


@dataclass(frozen=True, slots=True)
class Cluster:
    """Pools, and the pool to which a queue's jobs are bound; a queue without an entry may use all pools."""

    pools: tuple[PoolShape, ...]
    bound: dict[str, str] = field(default_factory=dict)  # queue → pool


@dataclass(frozen=True, slots=True)
class Costs:
    """The costs of preemptions, checkpoints and failures."""

    restart: float = 40.0  # seconds that each attempt after the first needs before it works, up to `wide` accelerators
    restart_wide: float = 60.0  # the same for gangs with more accelerators
    wide: int = 8
    checkpoint_every: float | None = None  # seconds of work between checkpoints; None: save only when preempted
    checkpoint_cost: float = 0.0  # seconds that a checkpoint interrupts the work
    node_failures: float = 0.0  # per node and day
    repair: float = 3600.0  # seconds until a failed node returns
    spot_interruptions: float = 0.0  # per spot node and day
    seed: int = 0


@dataclass(frozen=True, slots=True)
class SimStudy:
    """A study of a simulation, and what its trials train."""

    spec: StudySpec
    task: Task
    submit: float = 0.0  # seconds from the start of the trace
    user: str = "tuner"
    seed: int = 0  # unless its file has one
    memory: float = inf  # bytes of the devices that its trials run on

    @property
    def project(self) -> str:
        return str((self.spec.job or {}).get("project", DEFAULT))

    @property
    def queue(self) -> str:
        return str((self.spec.job or {}).get("queue", DEFAULT))


@dataclass(frozen=True, slots=True)
class Setup:
    """One configuration to simulate: a named policy on a cluster."""

    name: str
    rules: Rules
    cluster: Cluster
    costs: Costs = Costs()
    exact: bool = False  # jobs declare their true run time: an oracle, for comparison only
    quota: Quota = UNLIMITED  # of each user and each project
    alerts: RuleSet | None = None  # rules that raise alerts
    prices: PriceBook | None = None  # beside the prices of the rules; of one time, because a trace has no dates
    budgets: tuple[BudgetSet, ...] = ()  # in force from the beginning
    studies: tuple[SimStudy, ...] = ()  # beside the jobs of the trace


@dataclass(slots=True)
class JobResult:
    """The result of one job. Times are as in the trace."""

    job: TraceJob
    started: float | None = None  # first start
    finished: float | None = None
    held: float = 0.0  # seconds that its attempts held their nodes, restarts and lost work included
    preemptions: int = 0
    failures: int = 0
    lost: float = 0.0  # accelerator-seconds of repeated work and of restarts
    longest_in_quota: float = 0.0  # longest continuous wait in seconds while its queue had quota left for it
    refused: str = ""  # why it was rejected at submission

    @property
    def completion(self) -> float:
        assert self.finished is not None
        return self.finished - self.job.submit

    @property
    def queueing(self) -> float:
        """Seconds in the system without any node."""
        return self.completion - self.held


@dataclass(frozen=True, slots=True)
class Sample:
    """The cluster at one time."""

    time: float
    used: float  # accelerators
    total: float
    queued: int  # jobs
    usable: float  # fraction of the free accelerators that a typical gang can use
    by_queue: dict[str, float] = field(default_factory=dict)  # accelerators in use


@dataclass(slots=True)
class Money:
    """What the work of one setup cost, in millionths of the currency."""

    currency: str
    charged: int = 0  # to projects
    platform: int = 0  # lost to failures, preemption and failed starts
    idle: int = 0  # reserved and owned capacity that nobody used, from the first submission to the last end
    unpriced: float = 0.0  # accelerator-hours without a price, or worker-hours of work without accelerators

    @property
    def total(self) -> int:
        return self.charged + self.platform + self.idle


@dataclass(slots=True)
class StudyResult:
    """The result of one study. Times are as in the trace."""

    study: SimStudy
    id: str = ""
    refused: str = ""  # why it was rejected
    ended: float | None = None
    why: str = ""  # why it was stopped, if it was
    outcomes: dict[str, int] = field(default_factory=dict)  # outcome, or phase of those without one → trials
    cost: int = 0  # in millionths of the currency
    seconds: float = 0.0  # that its trials ran
    interruptions: int = 0  # of its trials, by jobs of others and by nodes that failed
    # When a trial passed a level or ended: time, its number, the first objective, and whether it ran to its end.
    values: list[tuple[float, int, float, bool]] = field(default_factory=list)


@dataclass(slots=True)
class Result:
    """The result of one setup."""

    setup: Setup
    jobs: list[JobResult]
    samples: list[Sample] = field(default_factory=list)
    rounds: int = 0  # ticks of the controller
    events: int = 0
    wall: float = 0.0  # seconds that the simulation took
    alerts: dict[str, int] = field(default_factory=dict)  # rule → how often it fired
    money: Money | None = None  # None: nothing has a price
    studies: list[StudyResult] = field(default_factory=list)
