"""Studies: how one stands, and its report. Amounts are whole millionths of `currency`, times are in seconds."""

from typing import Final, Literal, get_args

from muster.api.numbers import JsonFloat
from muster.api.typed import Doc, TypedDict
from muster.api.why import ReasonView

ParamValue = bool | int | float | str

# Every trial is in exactly one. queued: its job waits, or starts. leaving: it was told to save and leave.
TrialState = Literal[
    "queued", "running", "leaving", "paused",
    "complete", "stopped", "failed", "infeasible", "diverged", "lost", "replaced",
]  # fmt: skip
TRIAL_STATES: Final[tuple[TrialState, ...]] = get_args(TrialState)
# stopping: it asks for no more trials, and some still run.
StudyState = Literal["running", "stopping", "ended"]


class ObjectiveView(TypedDict):
    """`low` to `high` are the finite values so far. A chart shows `shown_low` to `shown_high`, which is where complete
    trials are, without the worst of them if these are far away; `beyond`: how many trials are worse than it shows.
    `log`: on a logarithmic scale."""

    metric: str
    direction: Literal["minimize", "maximize"]
    take: Literal["last", "best"]
    low: float | None
    high: float | None
    shown_low: float | None
    shown_high: float | None
    log: bool
    beyond: int


class LimitView(TypedDict):
    """`left` is null without a limit."""

    used: float
    limit: float | None
    left: float | None


class StudyLimits(TypedDict):
    """`ends_in`: at the pace so far, and `ends_by` the limit that is reached first; null where nothing tells."""

    trials: LimitView
    parallel: LimitView
    cost: LimitView
    seconds: LimitView
    ends_in: float | None
    ends_by: Literal["trials", "cost", "seconds"] | None


class StudyHead(TypedDict):
    """`search` and `stop` are the plug-ins of its file, with their options. `prior`: trials from elsewhere that it
    began with. `wait`: why it asks for no trial although its limits allow one; `stopped`: why it asks for none any
    more."""

    id: str
    name: str
    project: str
    user: str
    state: StudyState
    began: float
    ended: float | None
    now: float
    seed: int
    objectives: list[ObjectiveView]
    constraints: list[str]
    search: list[str]
    stop: str
    prior: int
    wait: ReasonView | None
    stopped: ReasonView | None
    currency: str
    limits: StudyLimits


class StateCount(TypedDict):
    """Trials in one state, and what they cost so far."""

    state: TrialState
    trials: int
    cost: int
    seconds: float


class SourceCount(TypedDict):
    """Trials by what suggested them: a searcher, or a user; `origin` says how."""

    by: str
    origin: str
    trials: int
    complete: int
    best: JsonFloat | None  # of the first objective, among those that are complete and break no constraint


class TrialRow(TypedDict):
    """`rank` 1 is the best: first those that are complete, then the others by how far they came and by their value,
    then those that break a constraint; null: it has no value, or repeats another trial. `values`: those it ended with
    if it is `final`, else those of the last level that it passed."""

    number: int
    rank: int | None
    state: TrialState
    params: dict[str, ParamValue]
    values: list[JsonFloat] | None
    final: bool
    violated: list[str]
    extra: dict[str, JsonFloat]
    levels: int
    step: int
    origin: str
    by: str
    of: int | None
    replaces: int | None  # the trial whose place it took
    seed: int | None
    bracket: int
    note: str
    began: float
    ended: float | None
    cost: int
    seconds: float
    starts: int
    attempts: int | None  # launches of its job; null: not known
    job: str
    pool: str
    front: bool  # no other trial is better in all objectives


class PlacedRow(TrialRow):
    """`places`: where its parameters are on the axes of `parameters`, from 0 to 1; null: it has none, or one that can't
    be drawn. `BinView.start` and `end` are on the same axes. `turn`: how many trials had ended when this one did."""

    places: list[float | None]
    turn: int | None


class BestPoint(TypedDict):
    """A trial that ended better than all before it. `ended`: how many trials had ended by then; `seconds`: since the
    study began; `cost`: what these trials had cost."""

    trial: int
    ended: int
    seconds: float
    cost: int
    value: JsonFloat


class BestSoFar(TypedDict):
    """`ended`, `seconds` and `cost` are those of now."""

    metric: str
    points: list[BestPoint]
    ended: int
    seconds: float
    cost: int


class ImportanceView(TypedDict):
    name: str
    share: float


class RungView(TypedDict):
    """A level at which the study looks at its trials. Each that reached it is in one of `went_on`, `running`,
    `complete`, `paused`, `stopped` and `other`. `cost` and `seconds`: spent below it, above the level before it;
    `level` null: spent above the last one."""

    bracket: int
    level: float | None
    reached: int
    went_on: int
    running: int
    complete: int
    paused: int
    stopped: int
    other: int
    best: JsonFloat | None
    median: JsonFloat | None
    cost: int
    seconds: float


class StudyStatus(TypedDict):
    """How a study stands: enough for a terminal."""

    study: StudyHead
    trials: int
    states: list[StateCount]
    best: TrialRow | None
    progress: list[BestSoFar]  # one for each objective
    importance: list[ImportanceView]  # the largest first; empty while too few trials are complete
    rungs: list[RungView]
    notes: list[str]


class BinView(TypedDict):
    """A part of an axis, from place `start` to `end` of 0 to 1. `best` and `median`: values of the first objective, of
    trials that are complete and break no constraint."""

    label: str
    start: float
    end: float
    trials: int
    complete: int
    best: JsonFloat | None
    median: JsonFloat | None


class ParameterView(TypedDict):
    """`low` to `high` has the space and all that was tried, `log`: on a logarithmic scale. `listed`: its
    values are few, evenly spaced, and have a bin each. `edge`: most of the best trials are at this end of the
    space. `trials`: those that have the parameter."""

    name: str
    kind: Literal["float", "int", "choice"]
    low: float
    high: float
    log: bool
    step: float | None
    choices: list[ParamValue]
    when: str
    listed: bool
    importance: float | None
    edge: Literal["low", "high"] | None
    trials: int
    bins: list[BinView]


class CellView(TypedDict):
    """Trials in one bin of both parameters. `standing`: the median of their ranks as a share of all, 0 is the best."""

    x: int
    y: int
    trials: int
    standing: float
    best: JsonFloat | None


class GridView(TypedDict):
    x: str
    y: str
    cells: list[CellView]  # without the empty ones


class CurvePoint(TypedDict):
    step: float
    value: JsonFloat


class CurveMark(TypedDict):
    """A later attempt began there. continued: it was promoted, or restarted; attempts of both kinds were made."""

    step: float
    what: Literal["promoted", "restarted", "continued"]


class TrialCurve(TypedDict):
    """`measured`: from the run's metrics; else from the levels that the trial passed."""

    number: int
    role: Literal["best", "median", "other"]
    measured: bool
    points: list[CurvePoint]
    marks: list[CurveMark]


class ConfirmedView(TypedDict):
    """A configuration that was run again with other seeds. `seen`: the value that made it a winner."""

    of: int
    params: dict[str, ParamValue]
    seen: JsonFloat | None
    values: list[JsonFloat]
    mean: JsonFloat | None
    deviation: JsonFloat | None
    seeds: int


class VerdictView(TypedDict):
    """`better`: whether the first is shown to be better than the second; null: that can't be tested."""

    better: bool | None
    p: float | None
    text: str


class SampleView(TypedDict):
    """`trials` are all, `ranked` those that have a rank, and `shown` those among the rows."""

    trials: int
    ranked: int
    shown: int
    best: int  # of the best, all are shown
    rule: str


class StudyReport(StudyStatus):
    """`rows`: the best first, then by number; `sample` says which. `front`: numbers of the trials that no other is
    better than in all objectives, sorted by the first; empty with one objective. `cheapest`: those that no trial of
    less cost (`measure`) is better than, the cheapest first."""

    sources: list[SourceCount]
    parameters: list[ParameterView]  # the most important first
    rows: list[PlacedRow]
    sample: SampleView
    grid: GridView | None
    front: list[int]
    measure: Literal["cost", "seconds"]
    cheapest: list[int]
    curves: list[TrialCurve]
    confirmed: list[ConfirmedView]
    verdict: VerdictView | None


class StudyLine(TypedDict):
    """One line of a list. `best`: the value of the first objective of the best trial."""

    id: str
    name: str
    project: str
    user: str
    state: StudyState
    phase: str  # of its job
    began: float
    ended: float | None
    objective: str
    direction: Literal["minimize", "maximize"]
    best: JsonFloat | None
    best_trial: int | None
    trials: int
    live: int
    limit: int | None  # of trials
    cost: int
    currency: str
    ends_in: float | None  # at the pace so far, seconds; null where nothing tells
    why: str  # why it stopped or waits


class StudyList(TypedDict):
    studies: list[StudyLine]


class StudyAccepted(TypedDict):
    """`notes`: what is worth a look, such as parameters that nothing seems to read."""

    id: str
    name: str
    notes: list[str]


class StudyDryRun(TypedDict):
    """A study file that would be accepted: its canonical form, and the job of one of its trials."""

    ok: bool
    study: Doc
    job: Doc | None
    notes: list[str]


class StudyChange(TypedDict):
    """What is different between the file in force and another one. `fits`: trials that are points of the new space;
    the others are not searched from any more."""

    changes: list[str]
    trials: int
    fits: int
    applied: bool


class TrialList(TypedDict):
    """`next`: where the following page begins."""

    trials: list[TrialRow]
    next: int | None


class AskedTrial(TypedDict):
    """A trial for whoever asked: `number` null if none may start now, and why. `resume`: it was paused before."""

    number: int | None
    params: dict[str, ParamValue]
    resume: bool
    seed: int | None
    why: str
    over: bool  # the study is over, or will be when the trials that run are


class TrialWord(TypedDict):
    """What a trial that somebody outside runs should do now."""

    do: Literal["go", "pause", "stop"]
    note: str


class StudyText(TypedDict):
    """The file in force, as it was written."""

    id: str
    text: str
    study: Doc
    job: Doc | None
