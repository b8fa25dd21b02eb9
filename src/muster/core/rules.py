"""The rules of a cluster in canonical form: scheduling, for queues, pools and projects, and guards.

A policy file contains what differs from these defaults. `sched` decides by the rules, `muster queue rules` prints them.
Durations are in seconds, shares of a cluster in accelerators.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from muster.api.words import Kind, Rung
from muster.api.words import WorkClass as WorkClass

WORK_CLASSES: tuple[WorkClass, ...] = ("single", "distributed", "trial", "evaluation", "session")
Backfill = Literal["none", "easy", "conservative", "greedy"]
Between = Literal["rank", "fair"]
Estimates = Literal["learnt", "declared"]
Missing = Literal["refuse", "mark"]
Stragglers = Literal["report", "move"]
Check = Literal["secrets", "large_files", "notebooks", "artifacts", "images", "environments", "advisories", "memory"]
GuardAction = Literal["off", "warn", "refuse"]
Severity = Literal["low", "medium", "high", "critical"]
Day = Literal["mon", "tue", "wed", "thu", "fri", "sat", "sun"]
DAYS: tuple[Day, ...] = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")

CHECKS: tuple[Check, ...] = (
    "secrets", "large_files", "notebooks", "artifacts", "images", "environments", "advisories", "memory",
)  # fmt: skip
TAKE_APPROVED: tuple[Check, ...] = ("images", "environments")
TAKE_LIMIT: tuple[Check, ...] = ("large_files", "images")
TAKE_SEVERITY: tuple[Check, ...] = ("advisories",)

FieldName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._/-]*$", max_length=100)]
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=63)]
Text = Annotated[str, Field(min_length=1, max_length=500)]
Bytes = Annotated[int, Field(ge=1, le=1 << 60)]
Seconds = Annotated[float, Field(ge=0, le=315_360_000)]
Weight = Annotated[float, Field(gt=0, le=1e6)]
Accelerators = Annotated[int, Field(ge=0, le=10_000_000)]
BASELINE = "baseline"  # stands for the baseline of the project
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


class MetricNeed(_Canonical):
    """A metric that must be better than a baseline's, by a test over runs that differ in their seed alone."""

    name: Annotated[str, Field(min_length=1, max_length=200)]
    goal: Literal["min", "max"] = "min"
    better_than: Annotated[str, Field(min_length=1, max_length=100)] = BASELINE  # a run, or the project's baseline
    seeds: Annotated[int, Field(ge=1, le=100)] = 3  # on both sides


class EfficiencyNeed(_Canonical):
    """How much of each device's throughput must be left at a larger scale, measured with the same job."""

    devices: Annotated[int, Field(ge=2, le=1_000_000)] = 2
    at_least: Annotated[float, Field(gt=0, le=2)] = 0.8
    metric: Annotated[str, Field(min_length=1, max_length=200)] | None = None  # of throughput; None: the usual names


class StageRules(_Canonical):
    """What a run must show before a job of this stage is made from it, or a model's version gets the stage."""

    after: Name | None = None  # the stage that it must have reached
    devices: Annotated[int, Field(ge=1, le=1_000_000)] | None = None  # that a job of this stage has at most
    certificate: Rung | None = None  # of preflight
    metric: MetricNeed | None = None
    cost_at_most: Annotated[float, Field(ge=0, le=1e9)] | None = None  # so far, in the price book's currency
    efficiency: EfficiencyNeed | None = None
    reviewer: Literal["member", "admin"] | None = None  # the role of somebody else, who approved


class ProjectRules(_Canonical):
    weight: Weight = 1.0
    max_running: Annotated[int, Field(ge=1)] | None = None
    max_accelerators: Accelerators | None = None
    require: tuple[FieldName, ...] = ()  # fields that every run must have: `owner`, `purpose`, `data`, a tag's name
    missing: Missing = "mark"  # a job that lacks one is refused, or its run is marked invalid
    keep: Keep = Keep()
    baseline: Annotated[str, Field(min_length=1, max_length=100)] | None = None  # the run that others must beat


class PreflightRule(_Canonical):
    """Rungs of preflight that a job must have passed. It applies to jobs that all of its conditions are true of."""

    require: Annotated[tuple[Rung, ...], Field(min_length=1)]
    action: Literal["refuse", "warn"] = "refuse"
    cost: Annotated[str, Field(pattern=r"^[0-9]+(\.[0-9]+)?( [A-Z]{3})?$", max_length=40)] | None = None  # or more
    devices: Annotated[int, Field(ge=1)] | None = None  # accelerators in all, or more
    projects: tuple[Name, ...] = ()  # (): all
    environments: tuple[FieldName, ...] = ()  # values of the tag `environment`, or what the price book says
    pools: tuple[Name, ...] = ()  # the job may run in one of them
    valid: Annotated[float, Field(gt=0, le=315_360_000)] = 2_592_000.0  # seconds for which a certificate counts


class GuardRule(_Canonical):
    """What a check of jobs, code or artifacts does about a finding, for the jobs that the rule fits."""

    check: Check
    action: GuardAction
    projects: tuple[Name, ...] = ()  # (): any
    environments: tuple[Text, ...] = ()  # of a job, as `core.prices.environment_of` names them; (): any
    approved: tuple[Text, ...] = ()  # patterns, of `images` and `environments`
    limit: Bytes | None = None  # of one file (`large_files`) or of a whole image (`images`)
    severity: Severity | None = None  # of `advisories`: the lowest that counts

    def fits(self, check: Check, project: str, environment: str) -> bool:
        return (
            self.check == check
            and (not self.projects or project in self.projects)
            and (not self.environments or environment in self.environments)
        )


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
    preflight: tuple[PreflightRule, ...] = ()
    guards: tuple[GuardRule, ...] = ()  # for each check, the first that fits a job
    promotion: dict[Name, StageRules] = {}  # by stage

    def queue(self, name: str) -> QueueRules:
        return self.queues.get(name, self.defaults)

    def pool(self, name: str) -> PoolRules:
        return self.pools.get(name, _POOL)

    def project(self, name: str) -> ProjectRules:
        return self.projects.get(name, _PROJECT)

    def guard(self, check: Check, project: str, environment: str = "") -> GuardRule:
        """The rule of a check for a job of this project and environment, with the defaults for what it leaves out."""
        usual = USUAL_GUARDS[check]
        rule = next((rule for rule in self.guards if rule.fits(check, project, environment)), usual)
        left_out = {name: getattr(usual, name) for name in ("limit", "severity") if getattr(rule, name) is None}
        return rule.model_copy(update=left_out)

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


USUAL_GUARDS: dict[Check, GuardRule] = {
    "secrets": GuardRule(check="secrets", action="refuse"),
    "large_files": GuardRule(check="large_files", action="warn", limit=100_000_000),
    "notebooks": GuardRule(check="notebooks", action="warn"),
    "artifacts": GuardRule(check="artifacts", action="refuse"),
    "images": GuardRule(check="images", action="off"),
    "environments": GuardRule(check="environments", action="off"),
    "advisories": GuardRule(check="advisories", action="off", severity="high"),
    "memory": GuardRule(check="memory", action="warn"),
}
_POOL, _PROJECT, _TARGET = PoolRules(), ProjectRules(), Target()
