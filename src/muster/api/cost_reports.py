"""The cost ledger: reports, explanations and statements. Amounts are whole millionths of their currency."""

from typing import Literal

from muster.api.typed import NotRequired, TypedDict


class CostPeriod(TypedDict):
    """Whole days, `first` to `last`, in the time zone of the price book."""

    name: str
    first: str
    last: str
    zone: str
    over: bool


class CostTotal(TypedDict):
    """`amount` has `platform`, `idle` and `storage` in it. `pending` is not in it: what runs now has cost so far.

    `unpriced_hours` are held hours without a price, which are in no amount. `listed`: the amount at list price.
    """

    currency: str
    amount: int
    platform: int
    idle: int
    storage: int
    listed: int
    pending: int
    accelerator_hours: float
    worker_hours: float
    unpriced_hours: float
    entries: int


class CostRow(CostTotal):
    group: dict[str, str]


class CostReport(TypedDict):
    """`projects`: those that are covered; null: all. `left_out`: rows beyond the limit, which the totals have."""

    period: CostPeriod
    projects: list[str] | None
    by: list[str]
    rows: list[CostRow]  # the largest amount first
    totals: list[CostTotal]  # one for each currency
    left_out: int
    notes: list[str]


class FamilyCost(TypedDict):
    """`failed`: the part of the amount for attempts that did not succeed."""

    project: str
    family: str
    currency: str
    amount: int
    failed: int
    platform: int
    runs: int
    succeeded: int
    per_success: int | None  # the amount over the runs that succeeded


class FamilyCosts(TypedDict):
    period: CostPeriod
    definition: str
    families: list[FamilyCost]
    left_out: int
    notes: list[str]


class RunCost(TypedDict):
    """`marginal`: what each further point of the metric cost, against the run before it on the front."""

    run: str
    name: str
    project: str
    currency: str
    amount: int
    value: float
    front: bool
    marginal: float | None


class RunCosts(TypedDict):
    period: CostPeriod
    definition: str
    metric: str
    better: Literal["lower", "higher"]
    runs: list[RunCost]  # those of the front first, the cheapest first
    compared: int
    notes: list[str]


class WasteCost(TypedDict):
    cause: str
    kind: str
    currency: str
    amount: int
    share: float | None  # of all that was charged in this currency


class WasteCosts(TypedDict):
    period: CostPeriod
    definition: str
    causes: list[WasteCost]  # the largest first
    useful: dict[str, int]  # currency → amount of training and evaluating
    notes: list[str]


class CostForecast(TypedDict):
    """`low` to `high` is where the amount of the whole period is in 8 of 10 cases."""

    currency: str
    so_far: int
    pending: int
    expected: int | None
    low: int | None
    high: int | None
    days_left: float
    history: int  # days that it is made from
    unknown: str | None


class CostForecasts(TypedDict):
    period: CostPeriod
    definition: str
    forecasts: list[CostForecast]
    notes: list[str]


class CostChange(TypedDict):
    """`volume` is the difference in hours at the price before, `price` that of the price for the hours of now."""

    project: str
    pool: str
    account: str
    currency: str
    before: int
    now: int
    change: int
    volume: int
    price: int
    words: str


class CostChanges(TypedDict):
    period: CostPeriod
    before: CostPeriod
    definition: str
    totals: list[CostChange]  # one for each currency
    changes: list[CostChange]  # the largest first
    notes: list[str]


class SpotCost(TypedDict):
    """`saved` is against the list price, `lost` what interruptions cost, `net` the difference."""

    pool: str  # "": all
    currency: str
    amount: int
    share: float | None  # of the accelerator-hours
    saved: int
    lost: int
    net: int


class SpotCosts(TypedDict):
    period: CostPeriod
    definition: str
    pools: list[SpotCost]
    notes: list[str]


class HourCost(TypedDict):
    """Amounts for an accelerator-hour: at list price, as charged, with idle capacity, and of what was useful."""

    pool: str
    currency: str
    hours: float
    listed: int
    charged: int
    with_idle: int
    useful: int | None


class HourCosts(TypedDict):
    period: CostPeriod
    definition: str
    pools: list[HourCost]
    notes: list[str]


class CostEntry(TypedDict):
    """A part of a charge. `seq` is the number of its event (`muster events`); `rate` is per hour, null: no price."""

    seq: int
    part: int
    run: str
    attempt: int
    day: str
    begin: float
    end: float
    project: str
    user: str
    queue: str
    kind: str
    family: str
    environment: str
    pool: str
    account: str
    price: str
    unit: str
    currency: str
    amount: int
    listed: int
    hours: float
    unpriced_hours: float
    rate: float | None
    book: int
    correction: bool
    cause: str
    words: str  # the arithmetic
    paid_by: str  # who pays it, and why


class CostExplanation(TypedDict):
    entries: list[CostEntry]
    totals: list[CostTotal]
    next: str | None  # pass as `after` for the entries that follow
    notes: list[str]


class CostStatement(TypedDict):
    """What one project is charged for a period, by user, family, pool, price and account."""

    project: str
    period: CostPeriod
    rows: list[CostRow]
    totals: list[CostTotal]
    days: list[CostRow]
    notes: list[str]


class CostStatements(TypedDict):
    statements: list[CostStatement]


class AllocationView(TypedDict):
    """An allocation as OpenCost has it, with the fields that the ledger can fill."""

    name: str
    properties: dict[str, str | dict[str, str]]
    window: dict[str, str]
    start: str
    end: str
    minutes: float
    cpuCores: float
    cpuCoreHours: float
    cpuCost: float
    gpuCount: float
    gpuHours: float
    gpuCost: float
    ramBytes: float
    ramByteHours: float
    ramCost: float
    pvCost: float
    networkCost: float
    loadBalancerCost: float
    sharedCost: float
    externalCost: float
    totalCost: float
    totalEfficiency: float


class Allocations(TypedDict):
    """OpenCost's answer: one set for each step."""

    code: int
    data: list[dict[str, AllocationView]]
    message: NotRequired[str]
