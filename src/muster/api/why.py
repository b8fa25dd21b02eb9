"""Reasons, forecasts of starts, and why a job is in its current state."""

from muster.api.cost import CostEstimate
from muster.api.typed import Doc, NotRequired, TypedDict
from muster.api.words import Phase


class ReasonView(TypedDict):
    """A named cause. `code` and `data` are for programs, `message` and `hint` for people."""

    code: str
    message: str
    hint: str
    data: Doc


class ForecastView(TypedDict):
    """When a job starts, in seconds since 1970: by `p50` in half of the futures, by `p90` in nine of ten."""

    job: str
    at: float
    p50: float | None
    p90: float | None
    samples: int
    after: float | None
    never: bool
    cut: list[str]
    considered: int


class QueuedForecast(ForecastView):
    queue: str
    user: str


class ForecastList(TypedDict):
    now: float
    jobs: list[QueuedForecast]


class SuggestionView(TypedDict):
    """A change that would let a job start. `data["set"]` has the fields of the job file to change, if that is all."""

    code: str
    message: str
    data: Doc


class VariantView(SuggestionView):
    p50: float | None  # when the job would start after the change


class OfferView(TypedDict):
    """What one pool offers a job."""

    pool: str
    engine: str
    per_hour: float  # 0 where the pool has no price
    priced: bool  # whether it has one
    opens_at: float | None
    forecast: ForecastView | None
    waiting: int
    why_not: str


class WhatIfView(TypedDict):
    """What would happen to a job that was only checked."""

    warnings: NotRequired[list[str]]  # of guards, and of the checks of this installation
    starts_now: bool
    nodes: list[str]
    pool: str
    preempts: list[str]
    reasons: list[ReasonView]
    forecast: ForecastView
    sooner: list[VariantView]
    waits_for: list[SuggestionView]
    offers: list[OfferView]
    cost: NotRequired[CostEstimate]  # where anything has a price


class RunEstimate(TypedDict):
    """What is known in advance about a run: seconds, and its price where one is set."""

    p50: float | None  # from how long such jobs ran; None while too few have ended
    p90: float | None
    most: float | None  # its `max_duration`
    per_hour: float | None  # of the whole gang: where it runs, else in the cheapest pool that it fits


class JobForecast(TypedDict):
    id: str
    phase: Phase
    started_at: float | None
    forecast: ForecastView | None
    offers: list[OfferView]
    estimate: RunEstimate
    cost: NotRequired[CostEstimate]  # where anything has a price
    engine_estimate: NotRequired[float | None]  # of a job that waits in the engine's own queue


class ScoreView(TypedDict):
    """How accurate forecasts were. Ideal shares are 0.5 and 0.9; errors are in seconds."""

    jobs: int
    before_p50: float | None
    before_p90: float | None
    counted_p50: int
    counted_p90: int
    error: float | None
    size_of_error: float | None
    wait: float | None


class Calibration(TypedDict):
    since: float
    now: float
    all: ScoreView
    queues: dict[str, ScoreView]
    sizes: dict[str, ScoreView]


class JobAhead(TypedDict):
    """A job that goes first; its id is hidden if the caller can't see it."""

    id: str
    phase: Phase
    num_nodes: int
    accelerators: float


class TimelineStep(TypedDict):
    time: float
    phase: Phase
    attempt: int
    reason: ReasonView | None
