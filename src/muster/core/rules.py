"""The scheduling rules in canonical form, for queues, pools and projects.

A policy file contains what differs from these defaults. `sched` decides by the rules, `muster queue rules` prints them.
Durations are in seconds, shares of a cluster in accelerators.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from muster.api.words import Kind
from muster.api.words import WorkClass as WorkClass

WORK_CLASSES: tuple[WorkClass, ...] = ("single", "distributed", "trial", "evaluation", "session")
Backfill = Literal["none", "easy", "conservative", "greedy"]
Between = Literal["rank", "fair"]
Estimates = Literal["learnt", "declared"]
Missing = Literal["refuse", "mark"]
Stragglers = Literal["report", "move"]
Day = Literal["mon", "tue", "wed", "thu", "fri", "sat", "sun"]
DAYS: tuple[Day, ...] = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")

FieldName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._/-]*$", max_length=100)]
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=63)]
Seconds = Annotated[float, Field(ge=0, le=315_360_000)]
Weight = Annotated[float, Field(gt=0, le=1e6)]
Accelerators = Annotated[int, Field(ge=0, le=10_000_000)]
HIGH = 75  # the priority from which on the target wait for high priority applies


class _Canonical(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Window(_Canonical):
    """Hours of the week, in UTC; `start` after `end` runs past midnight and belongs to the day it starts on."""

    days: tuple[Day, ...] = DAYS
    start: Annotated[int, Field(ge=0, lt=86_400)] = 0  # seconds from midnight
    end: Annotated[int, Field(gt=0, le=86_400)] = 86_400


class Maintenance(_Canonical):
    """A time in which nodes are away: nothing is started there that would not be done before."""

    start: float  # seconds since 1970, UTC
    end: float
    nodes: tuple[str, ...] = ()  # (): the whole pool
    why: str = ""


class Target(_Canonical):
    """The longest wait that a class of work should see."""

    wait: Seconds = 1800.0
    high: Seconds = 300.0  # for priority 75 and more


class Escalation(_Canonical):
    """A job that has waited `after` seconds is treated as one of priority `to`."""

    after: Seconds
    to: Annotated[int, Field(ge=0, le=100)]


class Preemption(_Canonical):
    """When running work gives way, and how."""

    enabled: bool = True
    grace: Seconds = 60.0  # time to save
    min_run: Seconds = 300.0  # after its start an attempt is not preempted for this long, except to reclaim quota
    restart_cost: Seconds = 60.0  # of a worker: time to stop and start again, not counting the lost work
    # Work older than this counts as saved, so that a job can't protect itself by saving rarely.
    save_every: Seconds = 1800.0
    margin: Annotated[float, Field(ge=1, le=1000)] = 2.0  # minimum ratio of a job's value to its victim's


class QueueRules(_Canonical):
    """What holds for one queue. None of a limit is no limit."""

    parent: Name | None = None  # a queue of the same project: quota and shares add up along the tree
    weight: Weight = 1.0  # relative to its siblings, under fair share
    users: dict[str, Weight] = {}  # weights within the queue; 1 for users that are not named
    order: Name = "predicted"  # a policy of `sched.policies`
    ageing: Seconds | None = 86_400.0  # order `priority`: the wait that is worth 25 points; None: never
    levels: tuple[Annotated[float, Field(gt=0)], ...] = (18_000.0,)  # attained: accelerator-seconds that end each level
    overdue: Seconds | None = 172_800.0  # after this total wait a job goes first and is not preempted; None: never
    backfill: Backfill = "greedy"
    quota: dict[Name, Accelerators] = {}  # pool → accelerators that the queue owns
    borrow: dict[Name, Accelerators] | None = None  # pool → maximum beyond its quota; None: whatever is idle
    lend: bool = True  # other queues may use its idle quota
    max_running: Annotated[int, Field(ge=1)] | None = None  # maximum running jobs
    max_per_user: Annotated[int, Field(ge=1)] | None = None  # maximum running jobs of one user
    max_accelerators_per_user: Accelerators | None = None
    pools: tuple[Name, ...] = ()  # where its jobs may run; (): everywhere
    preempts: bool = True  # its jobs may preempt others
    preemptible: bool = True  # its jobs may be preempted
    slice: Seconds | None = None  # sessions and single-node jobs take turns of this length when others wait
    escalation: Escalation | None = None


class PoolRules(_Canonical):
    """What holds for one pool."""

    levels: tuple[Name, ...] = ("zone", "rack", "link")  # node labels, widest first
    slices: Annotated[int, Field(ge=1, le=1000)] = 1000  # into how many equal parts one accelerator can be divided
    kinds: tuple[Kind, ...] = ()  # of jobs that it is for; (): any
    off_peak: tuple[Window, ...] = ()  # when jobs with `off_peak: true` may start
    maintenance: tuple[Maintenance, ...] = ()
    spot: bool | None = None  # None: as the engine reports
    price: Annotated[float, Field(ge=0, le=1e6)] = 0.0  # per accelerator and hour; per node and hour if it has none
    # For bursts: a job that names no pool may use this pool once it has waited this long and no other pool has room.
    # None: at once.
    burst: Seconds | None = None
    spares: Annotated[int, Field(ge=0, le=100_000)] = 0  # healthy nodes kept free, for gangs that lost a node
    stragglers: Stragglers = "report"  # `move`: a job leaves a node on which it and others are slow, at a checkpoint


class Keep(_Canonical):
    """How long artifacts stay after their run has ended; None is for ever."""

    file: Seconds | None = None
    media: Seconds | None = None
    checkpoint: Seconds | None = None
    code: Seconds | None = None  # snapshots and diffs
    model: Seconds | None = None
    failed: Seconds | None = None  # everything of a run that failed or was stopped
    keep_models: bool = True  # artifacts of the kind `model` are kept, whatever the other rules say


class ProjectRules(_Canonical):
    weight: Weight = 1.0
    max_running: Annotated[int, Field(ge=1)] | None = None
    max_accelerators: Accelerators | None = None
    require: tuple[FieldName, ...] = ()  # fields that every run must have: `owner`, `purpose`, `data`, a tag's name
    missing: Missing = "mark"  # a job that lacks one is refused, or its run is marked invalid
    keep: Keep = Keep()


class Rules(_Canonical):
    """The whole policy. Queues, pools and projects that are not named follow the defaults."""

    version: Literal[1] = 1
    between: Between = "rank"  # how queues are compared: by the rank of their best job, or by fair share
    half_life: Annotated[float, Field(gt=0, le=315_360_000)] = 604_800.0  # of past use, under fair share
    reclaim: Seconds = 300.0  # time within which lent quota is returned
    estimates: Estimates = "learnt"  # of run times: from finished work, or what jobs declare as `max_duration`
    round: Seconds = 0.0  # decide only at multiples of this; 0: at every change
    reselect: bool = False  # each round selects the running jobs again, by accelerator count; the others are stopped
    # The share of a pool that overdue jobs may hold ahead of others. Without a limit, an overloaded pool serves by age.
    overdue_share: Annotated[float, Field(ge=0, le=1)] = 0.125
    depth: Annotated[int, Field(ge=1, le=100_000)] = 100  # jobs that conservative backfill makes reservations for
    preemption: Preemption = Preemption()
    targets: dict[WorkClass, Target] = {}
    defaults: QueueRules = QueueRules()
    queues: dict[Name, QueueRules] = {}
    pools: dict[Name, PoolRules] = {}
    projects: dict[Name, ProjectRules] = {}

    def queue(self, name: str) -> QueueRules:
        return self.queues.get(name, self.defaults)

    def pool(self, name: str) -> PoolRules:
        return self.pools.get(name, _POOL)

    def project(self, name: str) -> ProjectRules:
        return self.projects.get(name, _PROJECT)

    def target(self, work: WorkClass, priority: int) -> float:
        """The target wait of the job in seconds."""
        target = self.targets.get(work, _TARGET)
        return target.high if priority >= HIGH else target.wait

    def lineage(self, name: str) -> Iterator[str]:
        """The queue and its ancestors, upwards. A policy with a cycle is never in force."""
        above: str | None = name
        while above is not None:
            yield above
            above = self.queue(above).parent


_POOL, _PROJECT, _TARGET = PoolRules(), ProjectRules(), Target()
