"""Jobs: what was submitted, its state, its attempts, its output and the cost of its restarts."""

from muster.api.errors import ErrorView
from muster.api.numbers import JsonFloat
from muster.api.typed import Doc, NotRequired, TypedDict, open_ended
from muster.api.why import ForecastView, JobAhead, OfferView, ReasonView, SuggestionView, TimelineStep, WhatIfView
from muster.api.words import Kind, Phase, WorkerState


class ResourcesView(TypedDict):
    """Per node."""

    cpus: float
    memory: int
    accelerator: str
    accelerators: int
    share: int  # thousandths of each accelerator
    accelerator_memory: int  # bytes of each; 0: any, or unknown


class StartView(TypedDict):
    """The checkpoint of another run that a job starts from."""

    run: str
    step: int | None  # that was asked for; null: the newest
    taken: int | None  # the step of the one that it has; null: none yet


class CheckpointMarkView(TypedDict):
    """The last committed checkpoint."""

    step: int
    path: str
    time: float
    bytes: int
    attempt: int


class ProgressView(TypedDict):
    step: int | None
    total: float | None  # as the program gave it
    expected_total: float | None  # where it gave none and runs: the last step of the last succeeded run of that name
    unit: str | None
    time: float | None
    rate: float | None  # steps a second
    eta: float | None  # seconds, by either total; null unless the job runs
    metrics: dict[str, JsonFloat | None]  # last values; null where an old server stored a NaN


class ArrayView(TypedDict):
    """The tasks of an array."""

    tasks: int
    indexes: str  # as in the job file: `1-20%4`
    limit: int | None  # how many may run at once
    phases: dict[str, int]  # phase → tasks that are in it


class JobView(TypedDict):
    id: str
    number: int
    name: str
    kind: Kind
    project: str
    queue: str
    user: str
    phase: Phase
    reason: ReasonView | None
    since: float
    submitted_at: float
    started_at: float | None
    finished_at: float | None
    attempt: int
    nodes: list[str]
    pool: str
    num_nodes: int
    min_nodes: int
    nproc: int
    resources: ResourcesView
    priority: int
    restarts: dict[str, int]  # by the category of their reason
    checkpoint: CheckpointMarkView | None
    start_from: NotRequired[StartView | None]  # older servers don't send it
    progress: ProgressView | None
    can_save: NotRequired[bool]  # it runs, and its program looks for requests to save; older servers don't send it
    purpose: str | None
    parent: str | None  # the job that it belongs to, by its id
    index: int | None  # of a task of an array, which is its parent
    array: ArrayView | None  # of an array
    # In the answer to its submission: of budgets that it is over, and of the checks of this installation.
    warnings: NotRequired[list[str]]
    needs: dict[str, str]  # the jobs that it starts after, by their ids → succeeded, ended or failed
    tags: dict[str, str]
    run: str
    workdir: str | None


class OutputOfRank(TypedDict):
    attempt: int
    rank: int
    kept: int
    dropped: int


class OutputView(TypedDict):
    """Bytes of output that are kept, and that are not; `ranks` lists those with missing output."""

    kept: int
    dropped: int
    limit: int
    ranks: list[OutputOfRank]


class JobDetail(JobView):
    output: OutputView


class SaveOrder(TypedDict):
    """A request to save now. What is saved is a checkpoint of the job, later than `time`."""

    id: int
    job: str
    attempt: int
    time: float
    ranks: int  # how many are asked


class JobList(TypedDict):
    jobs: list[JobView]
    next: int | None  # pass it as `before` for the next page


class JobLine(TypedDict):
    jobs: list[JobView]


class QueuedJob(JobView):
    place: int | None  # in its queue, from 1; null while it waits for other jobs


class QueuedList(TypedDict):
    now: float
    jobs: list[QueuedJob]
    total: int  # on all pages
    next: str | None  # pass it as `after` for the next page


@open_ended
class JobSchemaView(TypedDict):
    """The JSON Schema of a job file; what else it has is said by JSON Schema itself."""

    title: str
    type: str
    properties: dict[str, Doc]


class JobFileView(TypedDict):
    """The text of a job file, and its fields as they are written there, by their names such as `resources.cpus`."""

    yaml: str
    fields: Doc


class JobSpecView(TypedDict):
    spec: Doc
    yaml: str


class DryRun(WhatIfView):
    ok: bool
    spec: Doc
    yaml: str


class BatchAccepted(TypedDict):
    id: str
    number: int
    warnings: NotRequired[list[str]]


class BatchRefused(TypedDict):
    error: ErrorView


class BatchAnswer(TypedDict):
    jobs: list[BatchAccepted | BatchRefused]  # in the order of the request


class WorkerView(TypedDict):
    node: str
    devices: list[int]
    state: WorkerState
    exit: Doc | None


class AttemptView(TypedDict):
    """One launch of the whole gang."""

    number: int
    planned_at: float
    workers: list[WorkerView]
    running_at: float | None
    ended_at: float | None
    outcome: str | None
    reason: ReasonView | None
    from_step: int | None
    pool: str


class AttemptList(TypedDict):
    attempts: list[AttemptView]


class WhyView(TypedDict):
    """Why a job is in its current state, and what would change that."""

    job: JobView
    reason: ReasonView | None
    all: list[ReasonView]
    place: int | None
    ahead: list[JobAhead]
    unblock: list[SuggestionView]
    forecast: ForecastView | None
    offers: list[OfferView]
    timeline: list[TimelineStep]


class LogChunkView(TypedDict):
    """A part of a rank's output; with `dropped`, in place of so many missing bytes."""

    id: int
    attempt: int
    rank: int
    offset: NotRequired[int]  # not in the last lines of a rank
    end: int
    text: str
    times: NotRequired[list[tuple[int, float]]]  # lines of the text, from 0, and when those from there on were written
    dropped: NotRequired[int]


class LogPage(TypedDict):
    chunks: list[LogChunkView]
    next: int
    end: bool


class MetricNames(TypedDict):
    names: list[str]


class AttemptPoints(TypedDict):
    attempt: int
    steps: list[int]
    times: list[float]
    values: list[JsonFloat]


class JobMetric(TypedDict):
    name: str
    attempts: list[AttemptPoints]


class RestartView(TypedDict):
    attempt: int
    at_step: int | None
    time: float
    reason: ReasonView | None
    seconds_lost: float
    steps_repeated: int


class CostView(TypedDict):
    """`amount`: what the ledger has of the run, and what its attempt has cost so far; `platform` is a part of it."""

    node_hours: float
    accelerator_hours: float
    startup: float
    currency: str
    amount: float
    platform: float


class JobSummary(TypedDict):
    """The run's time and steps, and the cost of its restarts."""

    id: str
    phase: Phase
    attempts: int
    steps: int | None
    steps_repeated: int
    seconds_total: float
    seconds_training: float
    seconds_lost: float
    goodput: float | None
    restarts: list[RestartView]
    cost: CostView
    output: OutputView
