"""The scheduling rules in their canonical form: what each queue, pool and project is held to.

A policy file says what differs from these defaults. `sched` decides by them, `muster queue rules` prints them.
Durations are in seconds, shares of a cluster in accelerators.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

WorkClass = Literal["single", "distributed", "trial", "evaluation", "session"]
WORK_CLASSES: tuple[WorkClass, ...] = ("single", "distributed", "trial", "evaluation", "session")
Backfill = Literal["none", "easy", "conservative", "greedy"]
Between = Literal["rank", "fair"]
Estimates = Literal["learnt", "declared"]
Missing = Literal["refuse", "mark"]
Day = Literal["mon", "tue", "wed", "thu", "fri", "sat", "sun"]
DAYS: tuple[Day, ...] = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")

FieldName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._/-]*$", max_length=100)]
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=63)]
Seconds = Annotated[float, Field(ge=0, le=315_360_000)]
Weight = Annotated[float, Field(gt=0, le=1e6)]
Accelerators = Annotated[int, Field(ge=0, le=10_000_000)]
HIGH = 75  # a priority from which the target wait of high priority holds


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
    nodes: tuple[str, ...] = ()  # () is all of the pool
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
    grace: Seconds = 60.0  # to save in
    min_run: Seconds = 300.0  # an attempt is left alone for so long after it began to run, but by who reclaims his own
    restart_cost: Seconds = 60.0  # of a worker: what stopping and starting again takes, beside the work that is lost
    # Work older than this counts as if it had been saved, so that saving rarely makes nobody safe.
    save_every: Seconds = 1800.0
    margin: Annotated[float, Field(ge=1, le=1000)] = 2.0  # by how many times the one must rank above the other


class QueueRules(_Canonical):
    """What holds for one queue. None of a limit is no limit."""

    parent: Name | None = None  # a queue of the same project: quota and shares add up along the tree
    weight: Weight = 1.0  # next to its siblings, under fair share
    users: dict[str, Weight] = {}  # weights within the queue; 1 for who is not named
    order: Name = "predicted"  # a policy of `sched.policies`
    ageing: Seconds | None = 86_400.0  # priority: the wait that makes up for 25 points; None never
    levels: tuple[Annotated[float, Field(gt=0)], ...] = (18_000.0,)  # attained: accelerator-seconds that end each level
    overdue: Seconds | None = 172_800.0  # in all, waited: such a job goes first and gives way to nobody; None never
    backfill: Backfill = "greedy"
    quota: dict[Name, Accelerators] = {}  # pool → accelerators that are the queue's own
    borrow: dict[Name, Accelerators] | None = None  # pool → most beyond its quota; None is as much as is idle
    lend: bool = True  # idle quota may be used by others
    max_running: Annotated[int, Field(ge=1)] | None = None  # jobs
    max_per_user: Annotated[int, Field(ge=1)] | None = None  # jobs of one user that run at once
    max_accelerators_per_user: Accelerators | None = None
    pools: tuple[Name, ...] = ()  # where its jobs may run; () is everywhere
    preempts: bool = True  # its jobs may take the place of others
    preemptible: bool = True  # its jobs may be asked to make place
    slice: Seconds | None = None  # sessions and single-node jobs take turns of this length when others wait
    escalation: Escalation | None = None


class PoolRules(_Canonical):
    """What holds for one pool."""

    levels: tuple[Name, ...] = ("zone", "rack", "link")  # node labels, widest first
    slices: Annotated[int, Field(ge=1, le=1000)] = 1000  # equal parts that one accelerator can be given away in
    kinds: tuple[Literal["train", "eval", "data", "sweep", "session"], ...] = ()  # of work it is for; () is any
    off_peak: tuple[Window, ...] = ()  # when jobs with `off_peak: true` may start
    maintenance: tuple[Maintenance, ...] = ()
    spot: bool | None = None  # None: as the engine says
    price: Annotated[float, Field(ge=0, le=1e6)] = 0.0  # of an accelerator and hour; of a node where there are none
    # For bursts: jobs that name no pool come here once they have waited so long and no other has room; None is at once.
    burst: Seconds | None = None


class Keep(_Canonical):
    """How long artifacts stay after their run has ended; None is for ever."""

    file: Seconds | None = None
    media: Seconds | None = None
    checkpoint: Seconds | None = None
    code: Seconds | None = None  # snapshots and changes
    model: Seconds | None = None
    failed: Seconds | None = None  # all of a run that failed or was stopped
    keep_models: bool = True  # artifacts of the kind `model` stay, whatever else is said


class ProjectRules(_Canonical):
    weight: Weight = 1.0
    max_running: Annotated[int, Field(ge=1)] | None = None
    max_accelerators: Accelerators | None = None
    require: tuple[FieldName, ...] = ()  # fields that every run must have: `owner`, `purpose`, `data`, a tag's name
    missing: Missing = "mark"  # a job that lacks one is refused, or its run marked invalid
    keep: Keep = Keep()


class Rules(_Canonical):
    """The whole policy. Queues, pools and projects that are not named follow the defaults."""

    version: Literal[1] = 1
    between: Between = "rank"  # queues against each other: by the rank of their best job, or by fair share
    half_life: Annotated[float, Field(gt=0, le=315_360_000)] = 604_800.0  # of past use, under fair share
    reclaim: Seconds = 300.0  # within which lent quota comes back
    estimates: Estimates = "learnt"  # of run times: from finished work, or what jobs declare as `max_duration`
    round: Seconds = 0.0  # decide only at multiples of this; 0 is at every change
    reselect: bool = False  # each round chooses anew who runs, by counting accelerators; the others leave
    # Of a pool, what overdue jobs may hold ahead of the others: without a limit an overloaded pool would serve by age.
    overdue_share: Annotated[float, Field(ge=0, le=1)] = 0.125
    depth: Annotated[int, Field(ge=1, le=100_000)] = 100  # jobs that conservative backfill reserves for
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
        """The longest wait in seconds that the job should see."""
        target = self.targets.get(work, _TARGET)
        return target.high if priority >= HIGH else target.wait

    def lineage(self, name: str) -> Iterator[str]:
        """The queue and those above it, upwards. A policy with a cycle is never in force."""
        above: str | None = name
        while above is not None:
            yield above
            above = self.queue(above).parent


_POOL, _PROJECT, _TARGET = PoolRules(), ProjectRules(), Target()
