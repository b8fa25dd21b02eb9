"""Runs: one shape of a run, which search results and the run's own page extend; its attempts and changes."""

from muster.api.artifacts import ArtifactView
from muster.api.goodput import HeldTime
from muster.api.jobs import JobSummary, OutputView
from muster.api.logbook import NoteView
from muster.api.metrics import SummaryView
from muster.api.numbers import JsonFloat
from muster.api.typed import Doc, NotRequired, TypedDict, open_ended
from muster.api.why import ReasonView
from muster.api.words import Kind, Phase


class CodeView(TypedDict):
    """Where the code of a run came from; texts are empty where that is not known."""

    commit: str
    branch: str
    dirty: bool
    tree: str  # digest of the snapshot's manifest


class RunFacts(TypedDict):
    """What every form of a run has."""

    id: str
    project: str
    experiment: int
    name: str
    user: str
    kind: Kind
    source: str
    phase: Phase
    created_at: float
    started_at: float | None
    ended_at: float | None
    parent: str | None
    deleted_at: float | None
    valid: bool
    problems: list[str]
    purpose: str
    attempts: int
    code: CodeView


Cell = JsonFloat | str | bool | None


class RunCells(RunFacts):
    """A run in a search that asked for columns."""

    cells: dict[str, Cell]  # by column


class RunView(RunFacts):
    """A run as lists have it."""

    params: dict[str, str]
    tags: dict[str, str]
    metrics: dict[str, JsonFloat]  # last values
    data: list[str]  # names of the data sets that it read


class VulnerableView(TypedDict):
    """A package with a known vulnerability."""

    package: str
    version: str
    advisory: str
    severity: str | None  # low, medium, high, critical; null: not known
    aliases: list[str]
    summary: str
    fixed_in: list[str]


class EnvironmentCheck(TypedDict):
    """Packages compared with the advisories of the server."""

    packages: int
    advisories: int  # that they were compared with
    vulnerable: list[VulnerableView]


@open_ended
class InputView(TypedDict):
    """Something that the run read, with what was recorded of it."""

    ref: str  # such as data:c4-en@v3
    digest: NotRequired[str]


class RunDetail(RunView):
    """A run with everything that was recorded of it."""

    doc: Doc  # captured facts: spec, command, environment, reason of its end, origin
    summaries: dict[str, SummaryView]  # of its metrics
    inputs: list[InputView]
    output: OutputView | None  # null for a run that is not a job's
    # Packages of its environment with known vulnerabilities; null without advisories, or if they can't be read.
    vulnerable: list[VulnerableView] | None


class RunPurged(TypedDict):
    id: str
    purged: bool
    rows: dict[str, int]  # that were deleted, by table


class RunParams(TypedDict):
    id: str
    params: dict[str, str]


class RunTags(TypedDict):
    id: str
    tags: dict[str, str]


class ChangeView(TypedDict):
    """A parameter or tag that was changed afterwards. `old` null: it did not exist; `new` null: it was removed."""

    id: int
    run: str
    time: float
    actor: str
    attempt: int
    space: str
    key: str
    old: str | None
    new: str | None


class ChangeList(TypedDict):
    id: str
    changes: list[ChangeView]


@open_ended
class RunAttempt(TypedDict):
    """What is known of one attempt; keys that are not known are left out."""

    attempt: int
    first_step: int | None
    nodes: NotRequired[list[str]]
    devices: NotRequired[list[list[int]]]
    planned_at: NotRequired[float]
    running_at: NotRequired[float]
    started_at: NotRequired[float]
    ended_at: NotRequired[float]
    outcome: NotRequired[str]
    reason: NotRequired[ReasonView]
    from_step: NotRequired[int]
    pool: NotRequired[str]
    exits: NotRequired[dict[str, Doc]]
    environment: NotRequired[Doc]
    params: NotRequired[dict[str, str]]


class RunAttempts(TypedDict):
    id: str
    attempts: list[RunAttempt]


@open_ended
class CheckpointView(TypedDict):
    """A checkpoint, and how to load it."""

    step: int
    attempt: int
    path: str
    bytes: int
    time: float
    gone_at: NotRequired[float]  # when it was removed
    taken_from: NotRequired[str]  # of another run that this one starts from: that run and its step, as `gpt-12@2000`


class CheckpointList(TypedDict):
    id: str
    checkpoints: list[CheckpointView]


class RunPage(TypedDict):
    """Everything of a run that a person looks at first, in one answer."""

    run: RunDetail
    attempts: list[RunAttempt]
    checkpoints: list[CheckpointView]
    changes: list[ChangeView]
    artifacts: list[ArtifactView]
    notes: list[NoteView]  # the newest 1,000, in the order in which they were written
    summary: JobSummary | None  # null for a run that is not a job's
    goodput: NotRequired[HeldTime | None]  # null for a run that has held nothing; older servers don't send it


class ReproducedData(TypedDict):
    name: str
    digest: str | None
    newest: str | None  # digest that a later run read


class KnownOfRun(TypedDict):
    """What was recorded of how a run was made."""

    run: str
    phase: Phase
    attempts: int
    code: Doc
    environment: Doc
    seeds: Doc
    data: list[ReproducedData]


class Reproduction(KnownOfRun):
    """What is needed to repeat a run."""

    spec: Doc
    yaml: str
    files: dict[str, tuple[str, int, int]] | None  # path: sha256, bytes, mode
