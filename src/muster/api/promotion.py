"""Promotion of runs: what a stage asks for, what was found, and the job that was made."""

from typing import Literal, NotRequired

from muster.api.jobs import JobView
from muster.api.typed import Doc, TypedDict


class NeedView(TypedDict):
    name: str  # run, stage, certificate, metric, cost, efficiency, reviewer
    holds: bool
    expected: str
    found: str
    command: str  # that gets it; empty if it holds


class ScalingPointView(TypedDict):
    devices: int
    throughput: float
    speedup: float  # over the smallest scale
    efficiency: float
    gain: float  # of each added device, in devices of the smallest scale


class ScalingView(TypedDict):
    points: list[ScalingPointView]
    stops_at: int | None  # the first scale whose added devices don't pay
    text: str


class StageEntryView(TypedDict):
    time: float
    actor: str
    stage: str
    action: Literal["asked", "approved", "promoted"]
    run: str
    job: str  # of a promotion: the run that was made
    doc: Doc  # why; of a promotion needs, changes and overridden


class PromotionStatus(TypedDict):
    run: str
    stage: str
    ready: bool
    needs: list[NeedView]
    scaling: ScalingView | None
    devices: int  # of the next job
    batch: str  # what becomes of the batch
    yaml: str  # the next job
    history: list[StageEntryView]


class PromotionMade(PromotionStatus):
    job: NotRequired[JobView]  # not of a dry run
    overridden: list[str]  # names of needs that did not hold


class ReviewView(TypedDict):
    """A review of a run that somebody asked for, and nobody has answered."""

    time: float
    actor: str
    project: str
    run: str
    stage: str
    why: str
    reviewer: Literal["member", "admin"]  # the role that may approve
    yours: bool  # whether you may: you have the role, and it is not your run


class ReviewList(TypedDict):
    reviews: list[ReviewView]  # the newest first; at most 100
