"""The shapes of costs. Amounts are whole millionths of the currency."""

from typing import Literal

from muster.api.typed import Doc, TypedDict

ChoiceWord = Literal["this", "pool", "spot", "off_peak", "fewer_nodes"]


class PriceView(TypedDict):
    """One price of a pool, for an hour. Times in seconds since 1970; `until` None: for ever."""

    pool: str
    since: float
    until: float | None
    kind: str
    in_force: bool
    accelerator: int | None
    node: int | None
    cpu: int | None
    memory: int | None  # of 10^9 bytes
    off_peak: str  # the hours with another price, and the part of the price that is paid then; "" if none
    capacity: int | None
    source: str


class PricesView(TypedDict):
    """The prices in force. `version` is 0 without a book: pools then have the prices of the policy."""

    version: int
    currency: str
    timezone: str
    text: str
    prices: list[PriceView]
    unpriced: list[str]  # pools without a price now


class PricesAnswer(PricesView):
    """A book that was set or checked."""

    applied: bool
    changed: dict[str, float]  # pool → from when on charges of the past are corrected
    unknown: list[str]  # pools of the book that the server does not have


class BudgetView(TypedDict):
    """A budget in its present period."""

    name: str
    scope: dict[str, str]  # project, family, environment, user: those that are given; all of them must match
    mode: Literal["soft", "hard", "stop"]
    per: Literal["week", "month", "fixed"]
    first: str  # of a fixed budget: its first and its last day
    last: str
    currency: str
    amount: int
    period: str  # `2026-11`, `2026-W47` or `fixed`; empty if a fixed budget is not in force now
    begin: float | None
    end: float | None
    granted: int  # in this period, on top of the amount
    limit: int  # both
    spent: int  # by attempts that have ended
    used: int  # with what running attempts have cost so far
    committed: int  # what jobs that are not over are projected to cost yet, with what they have cost so far
    left: int  # of the limit, after what is spent and committed
    forecast: int | None  # used by the end of the period, at the pace of the last seven days


class BudgetList(TypedDict):
    budgets: list[BudgetView]


class BudgetSetView(BudgetView):
    applied: bool
    warnings: list[str]


class BudgetRemovedView(TypedDict):
    name: str


class CostChoice(TypedDict):
    """One way to run a job, and what it would cost. `set`: the fields of the job file to change for it."""

    what: ChoiceWord
    differs: str
    pool: str
    start: float | None  # P50, in seconds since 1970; null: not known
    per_hour: int | None  # null: no price
    p50: int | None
    p90: int | None  # null: no price, or nothing limits the run time
    notes: list[str]
    set: Doc


class CostEstimate(TypedDict):
    """What a run is expected to cost: as it is asked for first, then the alternatives."""

    currency: str
    seconds_p50: float  # run time
    seconds_p90: float | None
    source: Literal["learnt", "max_duration", "assumed"]  # of the run time
    tasks: int  # of an array; amounts are of one task
    choices: list[CostChoice]
    unknown: list[str]  # what can't be compared, and why


class AdviceView(TypedDict):
    """Something that would save money. `saves` is for a month; `arithmetic` says how it was computed."""

    kind: str
    subject: str
    project: str  # "": the whole platform
    saves: int
    arithmetic: str
    command: str
    evidence: list[str]
    confidence: Literal["measured", "estimated", "untested"]


class AdviceList(TypedDict):
    """`days`: that the facts cover. `whole`: all projects, and the demand of the pools."""

    now: float
    since: float
    days: float
    currency: str
    whole: bool
    runs: int
    unpriced: list[str]  # pools without a price: what ran there is in no amount
    advice: list[AdviceView]  # what saves most first
